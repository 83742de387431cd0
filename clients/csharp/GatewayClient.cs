using System;
using System.Collections.Generic;
using System.Globalization;
using System.Net.WebSockets;
using System.Text;

namespace Tilefence
{
    /// <summary>What became of an intent.</summary>
    public sealed class Answer
    {
        /// <summary>applied, fizzled, rejected or redirected; empty if there is an error, or it is not known.</summary>
        public string Outcome = "";
        /// <summary>What the game's rules say about it.</summary>
        public string Why = "";
        /// <summary>The code of an error that is final; empty: there is none.</summary>
        public string Error = "";
        /// <summary>What the error says, for a log.</summary>
        public string Message = "";
        /// <summary>The tile for which the player has left, where later intents belong; empty: it has not.</summary>
        public string CrossedTo = "";
        /// <summary>The answer to Where, and of a movement that named no tile.</summary>
        public string Tile = "";
        /// <summary>Nothing is known: the connection was lost after a movement was sent, or the client has ended.</summary>
        public bool Unknown;
    }

    /// <summary>
    /// Sends a player's intents to a gateway. A movement is sent once. An action is sent again, under its ID, after a lost
    /// connection and after an error that is retryable, until its outcome is known: it happens once. While the gateway or
    /// the tile is overloaded, movements are not sent for as long as it says, and a random part of that longer: they are
    /// answered with the error overloaded at once. All methods are for one thread, and the functions are called by Update.
    /// </summary>
    public sealed class GatewayClient
    {
        const double AnswerTimeout = 25;

        sealed class Request
        {
            internal string Message;
            internal bool Repeats, Sent, Moves;
            internal Action<Answer> Done;
            internal double SendAt, Late = double.MaxValue;
            internal int Failures;
        }

        readonly Dictionary<string, Request> waiting = new Dictionary<string, Request>();
        readonly Connection line;
        ulong last;
        double renewAt = double.MaxValue, sessionLeft;
        double held; // until then an overloaded gateway wants no movements
        readonly Random random = new Random();

        /// <summary>The game says something to the player.</summary>
        public Action<byte[]> OnTold;
        /// <summary>The connection is lost, and another one will be made.</summary>
        public Action<string> OnLost;
        /// <summary>The player is refused, and no other connection will be made.</summary>
        public Action<string> OnEnded;
        /// <summary>The player's token, for each connection and before the session expires. Null: there is none.</summary>
        public Func<string> Token;

        /// <summary>Connects with the first Update.</summary>
        public GatewayClient(string url)
        {
            line = new Connection(url, "tilefence.intent.v1.json", WebSocketMessageType.Text, () => Token == null ? null : Token())
            {
                Opened = Opened,
                Received = Received,
                Lost = Lost,
                EndedWith = why => { if (OnEnded != null) OnEnded(why); Finish(); },
            };
        }

        /// <summary>Sends a movement; with a move ID, which the player uses for no other, until its outcome is known. The player
        /// needs the answer within so many milliseconds, or whenever it comes if that is 0: a late gateway does not begin it
        /// after that.</summary>
        public void Move(string tile, byte[] body, Action<Answer> done, string move = "", int within = 0)
        {
            if (move == "" && Connection.Now < held)
            {
                done(new Answer { Error = "overloaded", Message = "the gateway has asked to wait" });
                return;
            }
            Ask("move", move != "", done, Field("tile", tile) + Field("move", move) + (within > 0 ? ",\"within\":" + within : "") + Field("body", Convert.ToBase64String(body)));
        }

        /// <summary>Sends an action. Its ID, 1 to 64 bytes, is a new one for each.</summary>
        public void Act(string tile, string action, string asset, long cost, byte[] body, Action<Answer> done)
        {
            Ask("act", true, done, Field("tile", tile) + Field("action", action) + Field("asset", asset) +
                (cost == 0 ? "" : ",\"cost\":" + cost.ToString(CultureInfo.InvariantCulture)) +
                Field("body", Convert.ToBase64String(body)));
        }

        /// <summary>Asks for the outcome of an action that this player has sent before.</summary>
        public void Outcome(string action, Action<Answer> done) { Ask("ask", true, done, Field("action", action)); }

        /// <summary>Asks in which tile the player is.</summary>
        public void Where(Action<Answer> done) { Ask("where", true, done, ""); }

        /// <summary>Ends the connection for good. What is under way is unknown.</summary>
        public void Close()
        {
            line.Close();
            Finish();
        }

        /// <summary>Does what is due, and calls the functions. Call it often: once a frame.</summary>
        public void Update()
        {
            line.Update();
            if (!line.IsOpen) return;
            foreach (var r in new List<Request>(waiting.Values))
            {
                if (Connection.Now > r.Late) { line.Drop("no answer"); return; }
                if (!r.Sent && Connection.Now >= (r.Moves ? Math.Max(r.SendAt, held) : r.SendAt)) Send(r);
            }
            if (Connection.Now < renewAt) return;
            Renew(sessionLeft / 4);
            if (Token != null) line.Send(Encoding.UTF8.GetBytes("{\"id\":\"token\",\"kind\":\"refresh\"" + Field("token", Token()) + "}"));
        }

        static string Field(string name, string value) { return value == "" ? "" : ",\"" + name + "\":" + Json.Quote(value); }

        void Ask(string kind, bool repeats, Action<Answer> done, string fields)
        {
            if (line.Ended) { done(new Answer { Unknown = true }); return; }
            string id = (++last).ToString(CultureInfo.InvariantCulture);
            var r = new Request { Message = "{\"id\":\"" + id + "\",\"kind\":\"" + kind + "\"" + fields + "}", Repeats = repeats, Moves = kind == "move", Done = done };
            waiting.Add(id, r);
            if (line.IsOpen && !(r.Moves && Connection.Now < held)) Send(r);
        }

        void Send(Request r)
        {
            r.Sent = true;
            r.Late = Connection.Now + AnswerTimeout;
            line.Send(Encoding.UTF8.GetBytes(r.Message));
        }

        void Opened() { line.Limit = 0; } // Update sends what waits

        void Received(byte[] bytes)
        {
            Dictionary<string, object> m;
            try { m = Json.Object(Encoding.UTF8.GetString(bytes)); }
            catch (WireException) { return; }
            var session = Json.Get<Dictionary<string, object>>(m, "session", null);
            if (session != null) Renew(Json.Get(session, "expires_in", 0.0) / 1000);
            string told = Json.Get<string>(m, "message", null);
            if (told != null && OnTold != null) OnTold(Convert.FromBase64String(told));
            Request r;
            string id = Json.Get(m, "id", "");
            if (!waiting.TryGetValue(id, out r)) return;
            var error = Json.Get<Dictionary<string, object>>(m, "error", null);
            double after = Math.Max(Json.Get(error, "retry_after", 0.0), 0) / 1000;
            if (r.Moves && after > 0 && Json.Get(error, "code", "") == "overloaded")
                held = Math.Max(held, Connection.Now + after * (1 + random.NextDouble() / 2));
            if (r.Repeats && Json.Get(error, "retryable", false))
            {
                r.Sent = false;
                r.Late = double.MaxValue;
                r.SendAt = Connection.Now + after + Connection.Pause(r.Failures++);
                return;
            }
            waiting.Remove(id);
            r.Done(new Answer
            {
                Outcome = Json.Get(m, "outcome", ""), Why = Json.Get(m, "why", ""),
                Error = Json.Get(error, "code", ""), Message = Json.Get(error, "message", ""),
                CrossedTo = Json.Get(Json.Get<Dictionary<string, object>>(m, "crossed", null), "to", ""),
                Tile = Json.Get(Json.Get<Dictionary<string, object>>(m, "where", null), "tile", ""),
            });
        }

        void Renew(double left)
        {
            sessionLeft = left;
            renewAt = left > 0.1 ? Connection.Now + left * 3 / 4 : double.MaxValue;
        }

        void Lost(string why)
        {
            renewAt = double.MaxValue;
            if (OnLost != null) OnLost(why);
            foreach (var pair in new List<KeyValuePair<string, Request>>(waiting))
            {
                var r = pair.Value;
                if (r.Sent && !r.Repeats)
                {
                    waiting.Remove(pair.Key);
                    r.Done(new Answer { Unknown = true });
                }
                r.Sent = false;
                r.Late = double.MaxValue;
            }
        }

        void Finish()
        {
            var all = new List<Request>(waiting.Values);
            waiting.Clear();
            foreach (var r in all) r.Done(new Answer { Unknown = true });
        }
    }
}
