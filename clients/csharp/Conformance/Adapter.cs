using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Threading;
using Tilefence;

/// <summary>The adapter with which the conformance kit checks the clients; see docs/guides/client.md.</summary>
static class Adapter
{
    static RelayClient relay;
    static GatewayClient gateway;
    static string token;
    static readonly List<KeyValuePair<string, int[]>> tiles = new List<KeyValuePair<string, int[]>>();

    static void Main(string[] args)
    {
        if (args.Length == 2 && args[0] == "golden") { Golden.Run(args[1]); return; }
        var lines = new ConcurrentQueue<string>();
        var input = new Thread(() =>
        {
            for (string l; (l = Console.ReadLine()) != null;) lines.Enqueue(l);
            Environment.Exit(0);
        }) { IsBackground = true };
        input.Start();
        Show("ready");
        for (; ; Thread.Sleep(10)) // as a game does once a frame
        {
            string line;
            while (lines.TryDequeue(out line)) Do(line.Split(' '));
            if (relay != null) relay.Update();
            if (gateway != null) gateway.Update();
        }
    }

    static void Show(string line)
    {
        Console.WriteLine(line.Trim());
        Console.Out.Flush();
    }

    static void Do(string[] w)
    {
        switch (w[0])
        {
            case "token": token = w[1]; break;
            case "join":
                var areas = w.Length > 3 ? Numbers(w[3]) : new int[0];
                if (relay != null) relay.Join(w[1], areas);
                else tiles.Add(new KeyValuePair<string, int[]>(w[1], areas));
                break;
            case "watch": relay.Watch(w[1], Numbers(w[2])); break;
            case "leave": relay.Leave(w[1]); break;
            case "relay":
                relay = new RelayClient(w[1])
                {
                    OnState = s => Show((s.Opens ? "open " : "state ") + s.Tile + Parts(s.Parts)),
                    OnBatch = b => Show("batch " + b.Tile + Parts(b.Events)),
                    OnRefused = (tile, code) => Show("error " + code + " " + tile),
                    OnLost = why => Show("lost " + why),
                    OnEnded = why => Show("ended " + why),
                    Token = () => token,
                };
                foreach (var t in tiles) relay.Join(t.Key, t.Value);
                break;
            case "gateway":
                gateway = new GatewayClient(w[1])
                {
                    OnTold = b => Show("told " + Hex(new ArraySegment<byte>(b))),
                    OnLost = why => Show("lost " + why),
                    OnEnded = why => Show("ended " + why),
                    Token = () => token,
                };
                break;
            case "move": gateway.Move(w[2], Bytes(w[3]), a => Answered(w[1], a)); break;
            case "act":
                gateway.Act(w[2], w[3], w[4], long.Parse(w[5], CultureInfo.InvariantCulture), Bytes(w[6]), a => Answered(w[1], a));
                break;
        }
    }

    static void Answered(string name, Answer a)
    {
        if (a.CrossedTo != "") Show("crossed " + name + " " + a.CrossedTo);
        Show("answer " + name + " " + (a.Unknown ? "unknown" : a.Error != "" ? "error " + a.Error : a.Outcome + " " + a.Why));
    }

    static int[] Numbers(string s) { return s.Split(',').Select(int.Parse).ToArray(); }
    static string Parts(IEnumerable<Part> parts) { return string.Concat(parts.Select(p => " " + p.Area + ":" + Hex(p.Content))); }
    internal static string Hex(ArraySegment<byte> b) { return BitConverter.ToString(b.Array, b.Offset, b.Count).Replace("-", "").ToLowerInvariant(); }
    internal static byte[] Bytes(string hex)
    {
        return Enumerable.Range(0, hex.Length / 2).Select(i => Convert.ToByte(hex.Substring(2 * i, 2), 16)).ToArray();
    }
}
