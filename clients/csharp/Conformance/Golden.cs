using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using Tilefence;

/// <summary>Reads relay/testdata/messages.json: every message of a relay, in binary, is what its JSON says.</summary>
static class Golden
{
    static int checks;

    internal static int Run(string file)
    {
        var all = (List<object>)Json.Object("{\"all\":" + File.ReadAllText(file) + "}")["all"];
        foreach (Dictionary<string, object> g in all)
        {
            var json = (Dictionary<string, object>)g["json"];
            if ((string)g["from"] == "relay") Check((string)g["name"], ServerMessage.Read(Adapter.Bytes((string)g["binary"])), json);
            else if (json.ContainsKey("resync")) Equal("resync", (string)g["binary"], Resync(Object(json, "resync")));
        }
        Console.WriteLine(checks + " checks");
        return checks;
    }

    static void Equal(string what, object want, object got)
    {
        checks++;
        if (!Equals(want, got)) throw new Exception(what + ": want " + want + ", got " + got);
    }

    static Dictionary<string, object> Object(Dictionary<string, object> o, string name)
    {
        return Json.Get(o, name, new Dictionary<string, object>());
    }

    static ulong Number(Dictionary<string, object> o, string name)
    {
        object v;
        return o.TryGetValue(name, out v) ? Convert.ToUInt64(v, CultureInfo.InvariantCulture) : 0;
    }

    static string Base64(Dictionary<string, object> o, string name) { return Json.Get(o, name, ""); }

    static Position At(Dictionary<string, object> o, string name)
    {
        var p = Object(o, name);
        return new Position { Epoch = Number(p, "epoch"), Seq = Number(p, "seq"), Chain = Number(p, "chain") };
    }

    static string Resync(Dictionary<string, object> r)
    {
        var body = new Writer().Text(1, (string)r["tile"]).Position(2, At(r, "position")).Number(3, Number(r, "epochFloor"));
        return Adapter.Hex(new ArraySegment<byte>(new Writer().Message(3, body.Done()).Done()));
    }

    static void Check(string name, ServerMessage m, Dictionary<string, object> json)
    {
        Equal(name, Json.Get(json, "tile", ""), m.Tile);
        Equal(name, json.ContainsKey("sync"), m.Sync != null);
        Equal(name, json.ContainsKey("frame"), m.Frame != null);
        if (json.ContainsKey("error")) Equal(name, Json.Get(Object(json, "error"), "code", ""), ServerMessage.Codes[m.Code]);
        if (json.ContainsKey("session")) Equal(name, (long)Number(Object(json, "session"), "expiresInMs"), m.SessionMs);
        if (json.ContainsKey("heartbeat")) Equal(name, (long)Number(Object(json, "heartbeat"), "intervalMs"), m.HeartbeatMs);
        if (m.Frame != null) Check(name, m.Tile, m.Frame, Object(json, "frame"));
        if (m.Sync == null) return;
        var s = Object(json, "sync");
        Equal(name, At(s, "from"), m.Sync.From);
        Equal(name, At(s, "position"), m.Sync.Position);
        Equal(name, Json.Get(s, "replace", false), m.Sync.Replace);
        Equal(name, Json.Get(s, "opens", false), m.Sync.Opens);
        Equal(name, Json.Get(s, "divided", false), m.Sync.Divided);
        Equal(name, Base64(s, "blob"), Convert.ToBase64String(m.Sync.Blob));
        Equal(name, true, m.Sync.Verify());
        Equal(name, Number(s, "ownerEpoch"), m.Sync.OwnerEpoch);
        Equal(name, Json.Get(s, "ownerContact", ""), m.Sync.OwnerContact);
        Equal(name, string.Join(",", Json.Get(s, "areas", new List<object>())), string.Join(",", m.Sync.Areas));
        var tail = Json.Get(s, "tail", new List<object>());
        Equal(name, tail.Count, m.Sync.Tail.Count);
        for (int i = 0; i < tail.Count; i++) Check(name, m.Tile, m.Sync.Tail[i], (Dictionary<string, object>)tail[i]);
    }

    static void Check(string name, string tile, Frame f, Dictionary<string, object> json)
    {
        Equal(name, At(json, "position"), f.Position);
        Equal(name, At(json, "prev"), f.Prev);
        Equal(name, Number(json, "tick"), f.Tick);
        Equal(name, Number(json, "atMs"), f.AtMs);
        Equal(name, Number(json, "hidden"), f.Hidden);
        Equal(name, Number(json, "rest"), f.Rest);
        Equal(name, Base64(json, "payload"), Convert.ToBase64String(f.Payload));
        Equal(name, true, f.Verify(tile));
        f.Tick++;
        Equal(name, false, f.Verify(tile));
    }
}
