using System;
using System.Collections.Generic;
using System.Net.WebSockets;

namespace Tilefence
{
    /// <summary>A tile, or some areas of it, that start over.</summary>
    public sealed class State
    {
        /// <summary>The tile's name, in hexadecimal.</summary>
        public string Tile;
        /// <summary>Where the state is from. The beginning: the tile has no snapshot, and starts empty.</summary>
        public Position Position;
        /// <summary>Of the snapshot.</summary>
        public ulong Tick;
        /// <summary>Only these areas start over; what is held of others stays.</summary>
        public bool Opens;
        /// <summary>The state of each area; of a tile that is not divided, one part of area 0, which may be empty.</summary>
        public IList<Part> Parts;
        /// <summary>Where the tile's owner takes intents; empty if it is not known.</summary>
        public string Owner;
    }

    /// <summary>A committed batch.</summary>
    public sealed class Batch
    {
        /// <summary>The tile's name, in hexadecimal.</summary>
        public string Tile;
        /// <summary>Where the tile is after it.</summary>
        public Position Position;
        /// <summary>The tick that made it.</summary>
        public ulong Tick;
        /// <summary>When the owner formed it, ms since 1970 by its clock; 0: it did not say.</summary>
        public ulong AtMs;
        /// <summary>The events of the areas that are held, or of those that a State has opened.</summary>
        public IList<Part> Events;
    }

    /// <summary>
    /// Watches tiles of a relay, by the rules of docs/wire.md. All methods are for one thread, and the functions are called
    /// by Update: in Unity, call Update from that of a MonoBehaviour. Connects again whenever the connection is lost.
    /// </summary>
    public sealed class RelayClient
    {
        const double ResyncTimeout = 5, FruitlessPause = 1, ForgetAfter = 30, FirstTimeout = 30, LongestLimit = 600;
        const int StaleAsks = 3;

        sealed class View
        {
            internal string Id;
            internal AreaSet Areas = AreaSet.All, Held = new AreaSet(new int[0]);
            internal readonly List<KeyValuePair<ulong, AreaSet>> Added = new List<KeyValuePair<ulong, AreaSet>>();
            internal bool Synced, Broken;
            internal Position At, Have;
            internal ulong Floor;
            internal double Asked = double.MinValue, AskAt = double.MaxValue, UnknownSince = double.MaxValue;
            internal int Stale;

            /// <summary>What the client says that it holds: nothing while areas are to come.</summary>
            internal Position Holds { get { return Synced && Held.Covers(Areas) ? At : default(Position); } }
        }

        readonly Dictionary<string, View> tiles = new Dictionary<string, View>();
        readonly Connection line;
        ulong watches;
        double patience = 1, limit, renewAt = double.MaxValue, sessionLeft;

        /// <summary>A tile starts over, or areas are added. May throw a WireException.</summary>
        public Action<State> OnState;
        /// <summary>The next batch of a tile. May throw a WireException.</summary>
        public Action<Batch> OnBatch;
        /// <summary>The relay could not do something: the tile, and the code's name in relay/view.proto.</summary>
        public Action<string, string> OnRefused;
        /// <summary>The connection is lost, and another one will be made.</summary>
        public Action<string> OnLost;
        /// <summary>The player is refused, and no other connection will be made.</summary>
        public Action<string> OnEnded;
        /// <summary>The player's token, for each connection and before the session expires. Null: there is none.</summary>
        public Func<string> Token;

        /// <summary>Connects with the first Update.</summary>
        public RelayClient(string url)
        {
            line = new Connection(url, "tilefence.view.v1", WebSocketMessageType.Binary, () => Token == null ? null : Token())
            {
                Opened = Opened,
                Received = Received,
                Lost = why => { renewAt = double.MaxValue; if (OnLost != null) OnLost(why); },
                EndedWith = why => { if (OnEnded != null) OnEnded(why); },
            };
        }

        /// <summary>Whether there is a connection.</summary>
        public bool IsOpen { get { return line.IsOpen; } }

        /// <summary>Where the view of a tile stands; the beginning before its first State.</summary>
        public Position PositionOf(string tile)
        {
            View v;
            return tiles.TryGetValue(tile, out v) ? v.At : default(Position);
        }

        /// <summary>Watches a tile from now on; some of its areas, if it is divided. Of one that is watched nothing changes.</summary>
        public void Join(string tile, params int[] areas)
        {
            if (tiles.ContainsKey(tile)) return;
            var v = new View { Id = tile, Areas = areas.Length == 0 ? AreaSet.All : new AreaSet(areas) };
            tiles.Add(tile, v);
            if (line.IsOpen) Subscribe(v);
        }

        /// <summary>Watches a tile no more.</summary>
        public void Leave(string tile)
        {
            if (tiles.Remove(tile) && line.IsOpen) Send(2, new Writer().Text(1, tile));
        }

        /// <summary>Watches other areas of a tile; none: all. The caller has forgotten those that are left.</summary>
        public void Watch(string tile, params int[] areas)
        {
            var v = tiles[tile];
            var want = areas.Length == 0 ? AreaSet.All : new AreaSet(areas);
            var added = want.Where(a => a != 0 && !v.Areas.Has(a));
            v.Areas = want;
            v.Held = v.Held.Where(want.Has);
            if (!line.IsOpen) return;
            v.Added.Add(new KeyValuePair<ulong, AreaSet>(++watches, added));
            Send(4, new Writer().Text(1, tile).Areas(2, want).Number(3, watches));
        }

        /// <summary>Ends the connection for good.</summary>
        public void Close() { line.Close(); }

        /// <summary>Does what is due, and calls the functions. Call it often: once a frame.</summary>
        public void Update()
        {
            line.Update();
            if (!line.IsOpen) return;
            foreach (var v in new List<View>(tiles.Values))
            {
                if (v.Broken) Gap(v, v.Have);
                if (Connection.Now >= v.AskAt) AskAgain(v);
                if (!line.IsOpen) return;
            }
            if (Connection.Now < renewAt) return;
            Renew(sessionLeft / 4); // until the answer comes
            if (Token != null) Send(5, new Writer().Text(1, Token()));
        }

        void Send(int field, Writer body) { line.Send(new Writer().Message(field, body.Done()).Done()); }

        void Opened()
        {
            line.Limit = FirstTimeout * patience;
            limit = 0;
            watches = 0;
            foreach (var v in tiles.Values)
            {
                v.Added.Clear();
                v.Asked = double.MinValue;
                v.AskAt = double.MaxValue;
                Subscribe(v);
            }
        }

        void Subscribe(View v)
        {
            var held = new Writer().Text(1, v.Id).Position(2, v.Holds).Number(3, v.Floor).Areas(4, v.Areas);
            Send(1, new Writer().Message(2, held.Done()));
        }

        void Resync(View v, Position have)
        {
            Send(3, new Writer().Text(1, v.Id).Position(2, have).Number(3, v.Floor));
        }

        void Received(byte[] bytes)
        {
            line.Limit = Math.Min(limit * patience, LongestLimit);
            View v = null;
            try
            {
                var m = ServerMessage.Read(bytes);
                tiles.TryGetValue(m.Tile, out v);
                if (m.Sync != null || m.Frame != null) patience = 1;
                if (m.HeartbeatMs > 0) limit = line.Limit = Math.Min(m.HeartbeatMs * 2.5 / 1000, LongestLimit);
                else if (m.SessionMs >= 0) Renew(m.SessionMs / 1000.0);
                else if (m.Code == ServerMessage.Stale && v != null) Behind(v);
                else if (m.Code == ServerMessage.UnknownEpoch && v != null) Unknown(v);
                else if (m.Code >= 0 && OnRefused != null)
                    OnRefused(m.Tile, m.Code < ServerMessage.Codes.Length ? ServerMessage.Codes[m.Code] : "CODE_" + m.Code);
                else if (m.Frame != null && v != null && v.Synced) Follow(v, m.Frame);
                else if (m.Sync != null && v != null) Start(v, m.Sync);
            }
            catch (WireException) { if (v != null) Gap(v, default(Position)); }
        }

        void Renew(double left)
        {
            sessionLeft = left;
            renewAt = left > 0.1 ? Connection.Now + left * 3 / 4 : double.MaxValue;
        }

        void Follow(View v, Frame f)
        {
            if (f.Position.Epoch < v.Floor) return; // of an owner that was replaced
            if (f.Prev.Equals(v.At) && f.Kind == 1)
            {
                if (!f.Verify(v.Id)) { Gap(v, v.Holds); return; }
                Apply(v, f, v.Held);
                MoveTo(v, f.Position);
                Mend(v);
            }
            else if (!f.Position.Equals(v.At) && (f.Position.Epoch > v.At.Epoch || f.Position.Seq > v.At.Seq)) Gap(v, v.Holds);
        }

        void Apply(View v, Frame f, AreaSet areas)
        {
            var events = Part.Events(f.Payload, areas);
            if (OnBatch == null) return;
            OnBatch(new Batch { Tile = v.Id, Position = f.Position, Tick = f.Tick, AtMs = f.AtMs, Events = events });
        }

        void Start(View v, Sync s)
        {
            if (!s.Replace && !v.Synced) return; // of an earlier subscription
            if (!s.Opens && s.Position.Epoch < v.Floor) { Behind(v); return; }
            var tail = Check(v, s.Replace || s.Opens ? s.From : v.At, s);
            if (tail == null || s.Opens && !s.Position.Equals(v.At))
            {
                v.Asked = s.Replace || s.Opens ? v.Asked : Connection.Now - ResyncTimeout + FruitlessPause;
                Gap(v, default(Position));
                return;
            }
            var areas = v.Held;
            if (s.Replace || s.Opens)
            {
                areas = Counting(v, s);
                if (s.Opens)
                {
                    var open = areas.Where(a => !v.Held.Has(a)).List();
                    if (open.Count == 1) return; // area 0 alone: they are not wanted any more
                    areas = new AreaSet(open);
                }
                Show(v, s, areas);
                v.Held = s.Opens ? new AreaSet(Both(v.Held, areas)) : areas;
                v.Synced = true;
                if (s.Replace) MoveTo(v, s.From);
            }
            foreach (var f in tail)
            {
                Apply(v, f, areas);
                if (!s.Opens) MoveTo(v, f.Position);
            }
            if (!s.Opens) Mend(v);
        }

        static List<int> Both(AreaSet a, AreaSet b)
        {
            var all = a.List();
            all.AddRange(b.List());
            return all;
        }

        void Show(View v, Sync s, AreaSet areas)
        {
            var parts = new List<Part>();
            if (!s.Divided) parts.Add(new Part(0, new ArraySegment<byte>(s.Blob)));
            else foreach (var p in Part.List(s.Blob)) if (areas.Has(p.Area)) parts.Add(p);
            if (OnState == null) return;
            OnState(new State { Tile = v.Id, Position = s.From, Tick = s.Tick, Opens = s.Opens, Parts = parts, Owner = s.OwnerContact });
        }

        /// <summary>The batches of a Sync that follow a position; null if they do not lead to its own, or are damaged.</summary>
        static List<Frame> Check(View v, Position at, Sync s)
        {
            var tail = new List<Frame>();
            foreach (var f in s.Tail)
            {
                if (!f.Prev.Equals(at)) continue;
                if (!f.Verify(v.Id)) return null;
                tail.Add(f);
                at = f.Position;
            }
            return at.Equals(s.Position) && s.Verify() ? tail : null;
        }

        /// <summary>The areas of a Sync that were watched without a break since the last Watch that the relay had seen.</summary>
        static AreaSet Counting(View v, Sync s)
        {
            v.Added.RemoveAll(a => a.Key <= s.Watch);
            return AreaSet.Of(s.Areas).Where(a => v.Areas.Has(a) && !v.Added.Exists(w => a != 0 && w.Value.Has(a)));
        }

        static void MoveTo(View v, Position p)
        {
            v.At = p;
            v.Floor = Math.Max(v.Floor, p.Epoch);
        }

        static void Mend(View v)
        {
            v.Broken = false;
            v.Asked = double.MinValue;
            v.AskAt = v.UnknownSince = double.MaxValue;
            v.Stale = 0;
        }

        /// <summary>The view does not continue: one Resync asks for what is missing, and another one if no answer comes.</summary>
        void Gap(View v, Position have)
        {
            v.Broken = true;
            if (Connection.Now - v.Asked < ResyncTimeout) return;
            v.Asked = Connection.Now;
            v.Have = have;
            Resync(v, have);
        }

        /// <summary>The relay is behind: keep what is held, and ask again after a pause that doubles each time.</summary>
        void Behind(View v)
        {
            if (v.AskAt == double.MaxValue) v.AskAt = Connection.Now + Connection.Pause(v.Stale++);
        }

        void AskAgain(View v)
        {
            v.AskAt = double.MaxValue;
            if (v.Stale % StaleAsks == 0) line.Drop("the relay is behind"); // perhaps another one is not
            else Resync(v, v.Holds);
        }

        /// <summary>The store knows no epoch as high as the floor. If that lasts, a relay has shown what never was.</summary>
        void Unknown(View v)
        {
            v.UnknownSince = Math.Min(v.UnknownSince, Connection.Now);
            if (Connection.Now - v.UnknownSince < ForgetAfter) { Behind(v); return; }
            Mend(v);
            v.At = default(Position);
            v.Floor = 0;
            v.Synced = false;
            Resync(v, v.At);
        }
    }
}
