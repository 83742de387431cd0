using System;
using System.Collections.Concurrent;
using System.Diagnostics;
using System.IO;
using System.Net.WebSockets;
using System.Threading;
using System.Threading.Tasks;

namespace Tilefence
{
    /// <summary>
    /// A connection that is made again whenever it is lost. Its tasks only move bytes: what happens is seen by Update, on
    /// the caller's thread.
    /// </summary>
    internal sealed class Connection
    {
        const double OpenTimeout = 20, BackoffMin = 0.25, BackoffMax = 15;
        const int Refused = 1008;
        static readonly Stopwatch clock = Stopwatch.StartNew();
        static readonly Random random = new Random();

        /// <summary>Seconds since the program began.</summary>
        internal static double Now { get { return clock.Elapsed.TotalSeconds; } }

        /// <summary>A random pause, in seconds, that doubles each time.</summary>
        internal static double Pause(int failures)
        {
            double cap = Math.Min(BackoffMax, BackoffMin * Math.Pow(2, Math.Min(failures, 10)));
            lock (random) return cap / 2 + random.NextDouble() * cap / 2;
        }

        readonly Uri uri;
        readonly string subprotocol;
        readonly WebSocketMessageType kind;
        readonly Func<string> token;
        Attempt now;
        double retryAt;
        int failures;

        internal Action Opened;
        internal Action<byte[]> Received;
        internal Action<string> Lost, EndedWith;
        /// <summary>Seconds of silence after which an open connection is lost; 0: none.</summary>
        internal double Limit;
        internal bool IsOpen { get { return now != null && now.Seen; } }
        internal bool Ended { get; private set; }

        internal Connection(string url, string subprotocol, WebSocketMessageType kind, Func<string> token)
        {
            uri = new Uri(url);
            this.subprotocol = subprotocol;
            this.kind = kind;
            this.token = token;
        }

        internal void Send(byte[] message) { if (IsOpen) now.Send(message, kind); }

        /// <summary>Does what has become due, and calls the functions.</summary>
        internal void Update()
        {
            if (Ended) return;
            if (now == null)
            {
                if (Now < retryAt) return;
                try { now = new Attempt(uri, subprotocol, token == null ? null : token()); }
                catch (Exception e) { Drop("no connection: " + e.Message); return; }
            }
            var a = now;
            if (a.Open && !a.Seen)
            {
                a.Seen = true;
                Opened();
            }
            byte[] m;
            while (now == a && a.Messages.TryDequeue(out m))
            {
                failures = 0; // not before: a player who is refused is so when the connection is open
                Received(m);
            }
            if (now != a) return;
            if (a.Over && a.Messages.IsEmpty) End(a);
            else if (Now - a.Heard > (a.Seen ? Limit > 0 ? Limit : double.MaxValue : OpenTimeout)) Drop("nothing heard");
        }

        void End(Attempt a)
        {
            if (a.Status != Refused) { Drop(a.Why); return; }
            Close();
            if (EndedWith != null) EndedWith(a.Why);
        }

        /// <summary>Gives up the present connection, and makes another one after a while.</summary>
        internal void Drop(string why)
        {
            if (now != null) now.Abort();
            now = null;
            retryAt = Now + Pause(failures++);
            if (Lost != null) Lost(why);
        }

        /// <summary>Ends for good.</summary>
        internal void Close()
        {
            Ended = true;
            if (now != null) now.Abort();
            now = null;
        }

        /// <summary>One WebSocket.</summary>
        sealed class Attempt
        {
            readonly ClientWebSocket socket = new ClientWebSocket();
            readonly CancellationTokenSource cancel = new CancellationTokenSource();
            readonly object sending = new object();
            Task last = Task.FromResult(0);
            long heard = clock.ElapsedTicks;

            internal readonly ConcurrentQueue<byte[]> Messages = new ConcurrentQueue<byte[]>();
            internal volatile bool Open, Over;
            internal bool Seen;
            internal volatile string Why = "";
            internal volatile int Status;
            internal double Heard { get { return (double)Interlocked.Read(ref heard) / Stopwatch.Frequency; } }

            internal Attempt(Uri uri, string subprotocol, string token)
            {
                socket.Options.AddSubProtocol(subprotocol);
                // With an origin of its own, a server that refuses the player says so with a status of the WebSocket.
                socket.Options.SetRequestHeader("Origin", (uri.Scheme == "wss" ? "https://" : "http://") + uri.Authority);
                if (token != null) socket.Options.SetRequestHeader("Authorization", "Bearer " + token);
                Task.Run(() => Run(uri));
            }

            async Task Run(Uri uri)
            {
                try
                {
                    await socket.ConnectAsync(uri, cancel.Token).ConfigureAwait(false);
                    Interlocked.Exchange(ref heard, clock.ElapsedTicks);
                    Open = true;
                    await Receive().ConfigureAwait(false);
                }
                catch (Exception e) { if (Why == "") Why = e.Message; }
                if (socket.CloseStatus.HasValue) Status = (int)socket.CloseStatus.Value;
                if (!string.IsNullOrEmpty(socket.CloseStatusDescription)) Why = socket.CloseStatusDescription;
                Over = true;
            }

            async Task Receive()
            {
                var buffer = new ArraySegment<byte>(new byte[16 << 10]);
                var message = new MemoryStream();
                for (; ; )
                {
                    var r = await socket.ReceiveAsync(buffer, cancel.Token).ConfigureAwait(false);
                    Interlocked.Exchange(ref heard, clock.ElapsedTicks);
                    if (r.MessageType == WebSocketMessageType.Close)
                    {
                        await socket.CloseOutputAsync(WebSocketCloseStatus.NormalClosure, "", cancel.Token).ConfigureAwait(false);
                        return;
                    }
                    message.Write(buffer.Array, 0, r.Count);
                    if (!r.EndOfMessage) continue;
                    Messages.Enqueue(message.ToArray());
                    message.SetLength(0);
                }
            }

            /// <summary>Sends behind what is being sent: a WebSocket takes one message at a time.</summary>
            internal void Send(byte[] message, WebSocketMessageType kind)
            {
                lock (sending) last = After(last, message, kind);
            }

            async Task After(Task before, byte[] message, WebSocketMessageType kind)
            {
                await before.ConfigureAwait(false);
                try { await socket.SendAsync(new ArraySegment<byte>(message), kind, true, cancel.Token).ConfigureAwait(false); }
                catch (Exception) { cancel.Cancel(); } // which ends Receive
            }

            internal void Abort()
            {
                cancel.Cancel();
                socket.Abort();
            }
        }
    }
}
