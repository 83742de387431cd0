using System;
using System.Collections.Generic;
using System.IO;
using System.Security.Cryptography;
using System.Text;

namespace Tilefence
{
    /// <summary>What was received cannot be read. If a function of RelayClient throws it, the tile is asked for anew.</summary>
    public sealed class WireException : Exception
    {
        /// <summary>Says what is wrong.</summary>
        public WireException(string message) : base("tilefence: malformed message: " + message) { }
    }

    /// <summary>A place in a tile's history. Two that are equal are the same history up to there.</summary>
    public struct Position : IEquatable<Position>
    {
        /// <summary>Of the owner that committed the batch.</summary>
        public ulong Epoch;
        /// <summary>The tile's batches, from 1.</summary>
        public ulong Seq;
        /// <summary>A hash over every batch up to here.</summary>
        public ulong Chain;

        /// <summary>Whether it is the beginning.</summary>
        public bool IsZero { get { return Equals(default(Position)); } }
        /// <summary>Compares all three parts.</summary>
        public bool Equals(Position o) { return Epoch == o.Epoch && Seq == o.Seq && Chain == o.Chain; }
        /// <summary>Compares all three parts.</summary>
        public override bool Equals(object o) { return o is Position && Equals((Position)o); }
        /// <summary>The hash of the chain, which is one.</summary>
        public override int GetHashCode() { return Chain.GetHashCode(); }
        /// <summary>Epoch, sequence and chain, for logs.</summary>
        public override string ToString() { return Epoch + "/" + Seq + "/" + Chain.ToString("x16"); }

        internal static Position Read(Reader r)
        {
            var p = new Position();
            while (r.Next())
            {
                if (r.Field == 1) p.Epoch = r.Number;
                else if (r.Field == 2) p.Seq = r.Number;
                else if (r.Field == 3) p.Chain = r.Number;
            }
            return p;
        }

        internal byte[] Bytes() { return new Writer().Number(1, Epoch).Number(2, Seq).Fixed(3, Chain).Done(); }
    }

    /// <summary>What a batch or a state holds of one area of a tile: an event, or the area's state.</summary>
    public struct Part
    {
        /// <summary>0 to 255; 0 is the whole tile.</summary>
        public readonly byte Area;
        /// <summary>The game's own encoding.</summary>
        public readonly ArraySegment<byte> Content;

        internal Part(byte area, ArraySegment<byte> content)
        {
            Area = area;
            Content = content;
        }

        /// <summary>The parts of a list, ascending by area.</summary>
        internal static IEnumerable<Part> List(byte[] list, Action<ArraySegment<byte>> encoded = null)
        {
            var r = new Reader(new ArraySegment<byte>(list));
            for (int last = -1; r.Left > 0;)
            {
                int start = r.At;
                byte area = r.Byte();
                var content = r.Take(r.Varint());
                if (area <= last || content.Count == 0) throw new WireException("areas out of order, or an empty one");
                last = area;
                if (encoded != null) encoded(new ArraySegment<byte>(list, start, r.At - start));
                yield return new Part(area, content);
            }
        }

        /// <summary>The events of a payload that are of some areas.</summary>
        internal static List<Part> Events(byte[] payload, AreaSet areas)
        {
            var all = new List<Part>();
            foreach (var part in List(payload))
                for (var r = new Reader(part.Content); r.Left > 0;)
                {
                    var e = r.Take(r.Varint());
                    if (areas.Has(part.Area)) all.Add(new Part(part.Area, e));
                }
            return all;
        }
    }

    /// <summary>A set of areas. Area 0 is in each.</summary>
    internal sealed class AreaSet
    {
        readonly bool[] has = new bool[256];
        internal static readonly AreaSet All = new AreaSet(null);

        internal AreaSet(IEnumerable<int> areas)
        {
            if (areas == null) for (int i = 0; i < 256; i++) has[i] = true;
            else foreach (int a in areas) has[a] = true;
            has[0] = true;
        }

        /// <summary>Areas as they are on the wire: none are all.</summary>
        internal static AreaSet Of(List<int> areas) { return areas.Count == 0 ? All : new AreaSet(areas); }
        internal bool Has(int area) { return has[area]; }
        internal bool IsAll { get { return Array.TrueForAll(has, h => h); } }
        internal bool Covers(AreaSet o) { return Array.TrueForAll(o.List().ToArray(), Has); }

        internal List<int> List()
        {
            var list = new List<int>();
            for (int i = 0; i < 256; i++) if (has[i]) list.Add(i);
            return list;
        }

        internal AreaSet Where(Predicate<int> keep) { return new AreaSet(List().FindAll(keep)); }
    }

    /// <summary>A batch as it is on the wire.</summary>
    internal sealed class Frame
    {
        internal Position Position, Prev;
        internal ulong Tick, AtMs, Kind, Hidden, Rest;
        internal byte[] Payload = new byte[0];

        internal static Frame Read(Reader r)
        {
            var f = new Frame();
            while (r.Next())
                switch (r.Field)
                {
                    case 1: f.Position = Position.Read(r.Message); break;
                    case 2: f.Prev = Position.Read(r.Message); break;
                    case 3: f.Tick = r.Number; break;
                    case 4: f.AtMs = r.Number; break;
                    case 5: f.Kind = r.Number; break;
                    case 6: f.Hidden = r.Number; break;
                    case 7: f.Payload = r.Content; break;
                    case 8: f.Rest = r.Number; break;
                }
            return f;
        }

        /// <summary>Whether the frame is what its chain says.</summary>
        internal bool Verify(string tile)
        {
            using (var sha = SHA256.Create())
            {
                ulong sum = Rest;
                try
                {
                    foreach (var p in Part.List(Payload, b => sum += First8(sha.ComputeHash(b.Array, b.Offset, b.Count)))) { }
                }
                catch (WireException) { return false; }
                var all = new MemoryStream();
                foreach (ulong n in new[] { Prev.Chain, Prev.Epoch, Prev.Seq, Convert.ToUInt64(tile, 16), Position.Epoch,
                    Tick, AtMs, Kind, sum, Hidden })
                    for (int shift = 56; shift >= 0; shift -= 8) all.WriteByte((byte)(n >> shift));
                return First8(sha.ComputeHash(all.ToArray())) == Position.Chain;
            }
        }

        static ulong First8(byte[] hash)
        {
            ulong n = 0;
            for (int i = 0; i < 8; i++) n = n << 8 | hash[i];
            return n;
        }
    }

    /// <summary>What brings a tile up to a position.</summary>
    internal sealed class Sync
    {
        internal bool Replace, Opens, Divided;
        internal Position From, Position;
        internal ulong Tick, OwnerEpoch, Watch;
        internal byte[] Blob = new byte[0];
        internal string Sum = "", OwnerContact = "";
        internal readonly List<Frame> Tail = new List<Frame>();
        internal readonly List<int> Areas = new List<int>();

        internal static Sync Read(Reader r)
        {
            var s = new Sync();
            while (r.Next())
                switch (r.Field)
                {
                    case 1: s.Replace = r.Number != 0; break;
                    case 2: s.From = Position.Read(r.Message); break;
                    case 3: s.Tick = r.Number; break;
                    case 4: s.Blob = r.Content; break;
                    case 5: s.Sum = r.Text; break;
                    case 7: s.Tail.Add(Frame.Read(r.Message)); break;
                    case 8: s.Position = Position.Read(r.Message); break;
                    case 9: s.OwnerEpoch = r.Number; break;
                    case 10: s.OwnerContact = r.Text; break;
                    case 11: r.Numbers(s.Areas); break;
                    case 12: s.Divided = r.Number != 0; break;
                    case 13: s.Opens = r.Number != 0; break;
                    case 14: s.Watch = r.Number; break;
                }
            return s;
        }

        /// <summary>Whether the blob is what its checksum says.</summary>
        internal bool Verify()
        {
            if (Blob.Length == 0 && Sum == "") return true;
            using (var sha = SHA1.Create())
                return BitConverter.ToString(sha.ComputeHash(Blob)).Replace("-", "").ToLowerInvariant() == Sum;
        }
    }

    /// <summary>A message of a relay.</summary>
    internal sealed class ServerMessage
    {
        internal string Tile = "", ErrorText = "";
        internal Sync Sync;
        internal Frame Frame;
        /// <summary>Of an Error; -1: it is none.</summary>
        internal int Code = -1;
        /// <summary>Milliseconds; -1: the message is about something else.</summary>
        internal long SessionMs = -1, HeartbeatMs = -1;

        internal static readonly string[] Codes = { "CODE_UNSPECIFIED", "CODE_MALFORMED", "CODE_INVALID_TILE",
            "CODE_TOO_MANY_TILES", "CODE_FORBIDDEN", "CODE_NOT_SUBSCRIBED", "CODE_UNAVAILABLE", "CODE_OVERLOADED",
            "CODE_RATE_LIMITED", "CODE_STALE", "CODE_UNAUTHENTICATED", "CODE_UNKNOWN_EPOCH" };
        internal const int Stale = 9, UnknownEpoch = 11;

        internal static ServerMessage Read(byte[] b)
        {
            var m = new ServerMessage();
            for (var r = new Reader(new ArraySegment<byte>(b)); r.Next();)
                switch (r.Field)
                {
                    case 1: m.Tile = r.Text; break;
                    case 2: m.Sync = Sync.Read(r.Message); break;
                    case 3: m.Frame = Frame.Read(r.Message); break;
                    case 4:
                        m.Code = 0;
                        for (var e = r.Message; e.Next();)
                            if (e.Field == 1) m.Code = (int)e.Number;
                            else if (e.Field == 2) m.ErrorText = e.Text;
                        break;
                    case 6: m.SessionMs = FirstNumber(r.Message); break;
                    case 7: m.HeartbeatMs = FirstNumber(r.Message); break;
                }
            return m;
        }

        static long FirstNumber(Reader r)
        {
            long n = 0;
            while (r.Next()) if (r.Field == 1) n = (long)Math.Min(r.Number, int.MaxValue);
            return n;
        }
    }

    /// <summary>Reads the fields of a protobuf message, or a list of parts.</summary>
    internal sealed class Reader
    {
        readonly byte[] b;
        readonly int end;
        internal int At { get; private set; }
        /// <summary>The field that Next has read: its number, and its value if it is a number.</summary>
        internal int Field { get; private set; }
        internal ulong Number { get; private set; }
        ArraySegment<byte> value;
        bool isBytes;

        internal Reader(ArraySegment<byte> bytes)
        {
            b = bytes.Array;
            At = bytes.Offset;
            end = bytes.Offset + bytes.Count;
        }

        internal int Left { get { return end - At; } }

        /// <summary>Reads the next field; false: there is none.</summary>
        internal bool Next()
        {
            if (Left == 0) return false;
            ulong key = Varint();
            Field = (int)(key >> 3);
            isBytes = (key & 7) == 2;
            switch (key & 7)
            {
                case 0: Number = Varint(); break;
                case 1: Number = Fixed(8); break;
                case 2: value = Take(Varint()); break;
                case 5: Number = Fixed(4); break;
                default: throw new WireException("wire type " + (key & 7));
            }
            return true;
        }

        ArraySegment<byte> Value { get { if (!isBytes) throw new WireException("field " + Field); return value; } }
        internal Reader Message { get { return new Reader(Value); } }
        internal string Text { get { return Encoding.UTF8.GetString(Value.Array, Value.Offset, Value.Count); } }

        internal byte[] Content
        {
            get
            {
                var copy = new byte[Value.Count];
                Array.Copy(Value.Array, Value.Offset, copy, 0, copy.Length);
                return copy;
            }
        }

        /// <summary>Areas, which are packed or not.</summary>
        internal void Numbers(List<int> to)
        {
            if (!isBytes) Add(to, Number);
            else for (var r = Message; r.Left > 0;) Add(to, r.Varint());
        }

        static void Add(List<int> to, ulong n)
        {
            if (n > 255) throw new WireException("area " + n);
            to.Add((int)n);
        }

        internal byte Byte()
        {
            if (Left < 1) throw new WireException("cut short");
            return b[At++];
        }

        internal ulong Varint()
        {
            ulong n = 0;
            for (int shift = 0; shift < 64; shift += 7)
            {
                byte x = Byte();
                n |= (ulong)(x & 127) << shift;
                if (x < 128) return n;
            }
            throw new WireException("oversized number");
        }

        ulong Fixed(int bytes)
        {
            ulong n = 0;
            for (int i = 0; i < bytes; i++) n |= (ulong)Byte() << (8 * i);
            return n;
        }

        internal ArraySegment<byte> Take(ulong n)
        {
            if (n > (ulong)Left) throw new WireException("cut short");
            At += (int)n;
            return new ArraySegment<byte>(b, At - (int)n, (int)n);
        }
    }

    /// <summary>Writes the fields of a protobuf message. What is zero or empty is left out.</summary>
    internal sealed class Writer
    {
        readonly MemoryStream to = new MemoryStream();

        internal byte[] Done() { return to.ToArray(); }

        internal Writer Number(int field, ulong n)
        {
            if (n != 0) { Varint((ulong)field << 3); Varint(n); }
            return this;
        }

        internal Writer Fixed(int field, ulong n)
        {
            if (n == 0) return this;
            Varint((ulong)field << 3 | 1);
            for (int i = 0; i < 8; i++) to.WriteByte((byte)(n >> (8 * i)));
            return this;
        }

        internal Writer Text(int field, string s) { return s == "" ? this : Message(field, Encoding.UTF8.GetBytes(s)); }

        /// <summary>A message that is there, even if it is empty.</summary>
        internal Writer Message(int field, byte[] content)
        {
            Varint((ulong)field << 3 | 2);
            Varint((ulong)content.Length);
            to.Write(content, 0, content.Length);
            return this;
        }

        internal Writer Position(int field, Position p) { return p.IsZero ? this : Message(field, p.Bytes()); }

        /// <summary>Areas, packed; all of them are left out.</summary>
        internal Writer Areas(int field, AreaSet areas)
        {
            if (areas.IsAll) return this;
            var packed = new Writer();
            foreach (int a in areas.List()) packed.Varint((ulong)a);
            return Message(field, packed.Done());
        }

        void Varint(ulong n)
        {
            for (; n > 127; n >>= 7) to.WriteByte((byte)(n | 128));
            to.WriteByte((byte)n);
        }
    }
}
