import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Client, WireError, events, subprotocol } from "./client.js";
import * as wire from "./messages.js";

const golden = JSON.parse(readFileSync(new URL("../testdata/messages.json", import.meta.url)));
const named = (name) => golden.find((g) => g.name === name).json;
const id = "85283473fffffff";
const base64 = (text) => Buffer.from(text).toString("base64");
const at = (epoch, seq) => ({ epoch: String(epoch), seq: String(seq), chain: String(epoch * 1000 + seq) });
const payload = base64("\x00\x02\x01e");
const frame = (epoch, seq, prev = at(epoch, seq - 1)) =>
  ({ tile: id, frame: { position: at(epoch, seq), prev, tick: String(seq), kind: 1, payload } });
const sync = (position, more = {}) =>
  ({ tile: id, sync: { replace: true, from: position, position, blob: base64("state"), ...more } });

/** A client on a line that the test holds, and all that it did. */
function begin(t, tiles = [id]) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const seen = { sent: [], connects: [], calls: [], closed: 0 };
  const note = (name) => (...args) => seen.calls.push([name, ...args]);
  const line = {
    connect: (url, protocol) => seen.connects.push([url, protocol]),
    send: (text) => seen.sent.push(JSON.parse(text)),
    close: () => seen.closed++,
  };
  const calls = Object.fromEntries(["restore", "open", "apply", "owner", "trouble"].map((n) => [n, note(n)]));
  const client = new Client("ws://relay", tiles, calls, line);
  t.after(() => client.close());
  client.connect();
  client.opened();
  return {
    client, seen, calls,
    hear: (...messages) => messages.forEach((m) => client.message(JSON.stringify(m), 1)),
    names: () => seen.calls.map(([name]) => name),
    last: () => seen.sent.at(-1),
    held: () => client.tiles.get(id).at,
  };
}

test("every golden message of a relay is read", (t) => {
  for (const g of golden.filter((g) => g.from === "relay")) {
    const { hear, seen } = begin(t);
    hear(g.json);
    if (g.json.error && !["CODE_STALE", "CODE_UNKNOWN_EPOCH"].includes(g.json.error.code)) assert.equal(seen.calls.at(-1)[0], "trouble", g.name);
    if (g.json.sync?.replace) assert.equal(seen.calls[0][0], "restore", g.name);
    t.mock.timers.reset();
  }
});

test("a refused player learns why, and asks again less and less often", (t) => {
  const { client, seen } = begin(t);
  const links = [];
  client.calls.link = (state, text) => links.push([state, text]);
  for (let i = 0; i < 12; i++) {
    client.closed("not authenticated: the token has expired");
    assert.deepEqual(links.at(-1), ["lost", "not authenticated: the token has expired: reconnecting"]);
    const connects = seen.connects.length;
    t.mock.timers.tick(Math.min(124 * 2 ** i, 7_499)); // before half of 250 ms, doubled each time, up to 15 s
    assert.equal(seen.connects.length, connects);
    t.mock.timers.tick(15_000);
    assert.equal(seen.connects.length, connects + 1);
    client.opened(); // the handshake is what a browser is told of
  }
});

test("a token is offered as a subprotocol, and renewed before the session expires", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const connects = [], sent = [], trouble = [];
  let tokens = ["first", "second"];
  const client = new Client("ws://relay", [id], {
    token: async () => { if (!tokens.length) throw new Error("signed out"); return tokens.shift(); },
    trouble: (text) => trouble.push(text),
  }, { connect: (url, protocols) => connects.push(protocols), send: (text) => sent.push(JSON.parse(text)), close() {} });
  t.after(() => client.close());
  const settle = async () => { for (let i = 0; i < 5; i++) await null; };
  client.connect();
  await settle();
  assert.deepEqual(connects, [[subprotocol, "tilefence.token.first"]]);
  client.opened();
  client.message(JSON.stringify(named("session")), 1); // 600 s
  t.mock.timers.tick(449_999);
  await settle();
  assert.equal(sent.length, 1);
  t.mock.timers.tick(1);
  await settle();
  assert.deepEqual(sent[1], { refresh: { token: "second" } });
  t.mock.timers.tick(112_500); // no answer came: once more, in the time that is left
  await settle();
  assert.deepEqual(trouble, ["No token: signed out"]);
  assert.equal(sent.length, 2);
  client.closed("the session has expired");
  t.mock.timers.tick(60_000);
  await settle();
  assert.equal(connects.length, 1, "without a token there is no connection");
  tokens = ["third"];
  t.mock.timers.tick(60_000);
  await settle();
  assert.deepEqual(connects[1], [subprotocol, "tilefence.token.third"]);
});

test("a view follows the golden history", (t) => {
  const { hear, seen, held } = begin(t);
  hear(named("sync from scratch, of a tile with a snapshot"));
  assert.equal(Buffer.from(seen.calls[0][2]).toString(), "state");
  assert.deepEqual(seen.calls.map(([n]) => n), ["restore", "apply", "owner"]);
  const payload = seen.calls[1][2].payload;
  assert.deepEqual(events(payload).map(([a, e]) => [a, Buffer.from(e).toString()]), [[0, "move"], [0, "stop"]]);
  assert.equal(held().chain, named("sync of what was missed").sync.position.chain);
});

test("what the client sends are the golden messages", (t) => {
  const { client, hear, seen } = begin(t);
  assert.deepEqual(seen.connects, [["ws://relay", subprotocol]]);
  assert.deepEqual(seen.sent, [{ subscribe: { tiles: [id], held: [] } }]);
  const install = named("resync").resync.position;
  hear({ tile: id, sync: { replace: true, from: install, position: install } });
  hear(frame(3, 9));
  assert.deepEqual(seen.sent.at(-1), named("resync"));
  client.leave(id);
  assert.deepEqual(seen.sent.at(-1), named("unsubscribe"));
});

test("a tile is joined and left over the open connection", (t) => {
  const { client, hear, seen, last, names } = begin(t);
  const other = "85283083fffffff", of = (tile, m) => ({ ...m, tile });
  hear(sync(at(1, 1)));
  client.join(other);
  assert.deepEqual(last(), { subscribe: { tiles: [other], held: [] } });
  client.join(other); // once
  client.join(id);
  assert.equal(seen.sent.length, 2);
  hear(of(other, sync(at(4, 7))), of(other, frame(4, 8)), frame(1, 2));
  assert.deepEqual(seen.calls.slice(-3).map(([name, tile]) => [name, tile]), [["restore", other], ["apply", other], ["apply", id]]);
  client.leave(id);
  assert.deepEqual(last(), { unsubscribe: { tiles: [id] } });
  hear(frame(1, 3), frame(1, 9));
  t.mock.timers.tick(10_000);
  assert.equal(names().length, 4, "nothing of a tile that was left, and nothing is asked for");
  assert.equal(seen.sent.length, 3);
  client.join(id);
  assert.deepEqual(last(), { subscribe: { tiles: [], held: [{ tile: id, areas: [], position: at(0, 0), epochFloor: "1" }] } }, "the floor is kept");
  hear(frame(1, 4), { tile: id, sync: { from: at(1, 1), position: at(1, 4), tail: [] } });
  assert.equal(names().length, 4, "what was sent before the join is not applied");
  hear(sync(at(1, 4)));
  assert.equal(names().at(-1), "restore");
  client.closed("gone");
  t.mock.timers.tick(300);
  client.opened();
  assert.deepEqual(last().subscribe.held.map((h) => h.tile), [id, other].sort().reverse(), "both are asked for again");
});

test("a gap is asked for once, then again when no answer comes", (t) => {
  const { client, hear, seen, held, last, names } = begin(t);
  hear(sync(at(1, 1)), frame(1, 2), frame(1, 4), frame(1, 5));
  assert.equal(seen.sent.length, 2);
  assert.deepEqual(last().resync.position, at(1, 2));
  assert.equal(held().seq, 2);
  hear({ tile: id, sync: { from: at(1, 2), tail: [frame(1, 3).frame, frame(1, 4).frame], position: at(1, 4) } });
  hear(frame(1, 4), frame(1, 5));
  assert.equal(held().seq, 5);
  assert.deepEqual(names(), ["restore", "apply", "apply", "apply", "apply"]);
  assert.equal(client.counts.repairs, 1);
  assert.equal(client.counts.duplicates, 1);
});

test("after a reconnect position and floor are named", (t) => {
  const { client, hear, seen, last } = begin(t);
  hear(sync(at(7, 3)));
  client.closed("gone");
  t.mock.timers.tick(300);
  assert.equal(seen.connects.length, 2);
  client.opened();
  const held = [{ tile: id, areas: [], position: at(7, 3), epochFloor: "7" }];
  assert.deepEqual(last(), { subscribe: { tiles: [], held } });
});

test("the pause between attempts grows, and close ends them", (t) => {
  const { client, seen } = begin(t);
  for (const longest of [250, 500, 1000]) {
    client.closed("");
    t.mock.timers.tick(longest / 2 - 1);
    const before = seen.connects.length;
    t.mock.timers.tick(longest / 2 + 1);
    assert.equal(seen.connects.length, before + 1, `within ${longest} ms`);
  }
  client.closed("");
  client.close();
  const before = seen.connects.length;
  t.mock.timers.tick(60_000);
  assert.equal(seen.connects.length, before);
  assert.equal(seen.closed, 1);
});

test("nothing below the epoch floor is shown", (t) => {
  const { client, hear, seen, held, last } = begin(t);
  hear(sync(at(5, 10)), sync(at(4, 99)), frame(4, 100, at(5, 10)));
  assert.equal(held().epoch, 5);
  assert.equal(client.counts.stale, 2);
  const sent = seen.sent.length;
  t.mock.timers.tick(250);
  assert.equal(seen.sent.length, sent + 1);
  assert.equal(last().resync.epochFloor, "5");
  // A relay that stays behind is left.
  for (let i = 0; i < 2; i++) {
    hear({ tile: id, error: { code: "CODE_STALE" } });
    t.mock.timers.tick(1000);
  }
  assert.equal(seen.connects.length, 2);
  client.opened();
  hear(sync(at(5, 11)));
  assert.equal(held().seq, 11);
});

test("a floor that the store does not know is forgotten after half a minute", (t) => {
  const { client, hear, held, last, seen } = begin(t);
  hear(sync(at(9007199254740991, 10))); // of a relay that believed a forged frame
  const unknown = { tile: id, error: { code: "CODE_UNKNOWN_EPOCH" } };
  hear(unknown, sync(at(4, 12)));
  assert.equal(held().seq, 10);
  client.tiles.get(id).unknown -= 31_000;
  hear(unknown);
  assert.equal(last().resync.epochFloor ?? "0", "0");
  hear(sync(at(4, 12)));
  assert.equal(held().seq, 12);
  const sent = seen.sent.length;
  t.mock.timers.tick(60_000);
  assert.equal(seen.sent.length, sent);
});

test("a callback that cannot read its bytes has the tile sent anew", (t) => {
  const { calls, client, hear, last } = begin(t);
  client.calls.apply = () => { throw new WireError("damaged"); };
  hear(sync(at(1, 1)), frame(1, 2));
  assert.equal(last().resync.position.seq, "0");
  client.calls.apply = calls.apply;
  hear(sync(at(1, 2)));
  assert.equal(client.counts.repairs, 1);
});

test("a tile is joined in part", (t) => {
  const { last } = begin(t, [{ id, areas: [0, 1, 2], watch: [0, 1] }]);
  assert.deepEqual(last(), { subscribe: { tiles: [], held: [{ tile: id, areas: [0, 1], position: at(0, 0), epochFloor: "0" }] } });
});

test("areas are opened at the position held", (t) => {
  const { client, hear, seen, last } = begin(t, [{ id, areas: [0, 1, 2] }]);
  client.watch(id, [1]);
  assert.deepEqual(last(), { watch: { tile: id, areas: [1], number: 1 } });
  hear(sync(at(1, 1), { areas: [1], watch: 1 }));
  client.watch(id, [1, 2]);
  hear(sync(at(1, 1), { replace: false, opens: true, areas: [2], watch: 1 })); // made before the relay saw the Watch
  assert.deepEqual(client.tiles.get(id).held, [1]);
  hear(sync(at(1, 1), { replace: false, opens: true, areas: [2], watch: 2 }));
  assert.deepEqual(client.tiles.get(id).held, [1, 2]);
  assert.deepEqual(seen.calls.map(([n, , , areas]) => [n, areas]), [["restore", [1]], ["open", [2]]]);
});

/** Date and performance.now as the test sets them. */
function clocks(t) {
  const clock = { mono: 0, wall: 1e12 };
  t.mock.method(performance, "now", () => clock.mono);
  t.mock.method(Date, "now", () => clock.wall);
  return (ms) => { // a second at a time, as the client looks
    for (; ms > 0; ms -= 1000) {
      clock.mono += 1000;
      clock.wall += 1000;
      t.mock.timers.tick(1000);
    }
    return clock;
  };
}
const heartbeat = { heartbeat: { intervalMs: 10_000 } };

test("a connection on which nothing comes is lost, and made again", (t) => {
  const pass = clocks(t), { client, hear, seen, last } = begin(t), links = [];
  client.calls.link = (state, text) => links.push([state, text]);
  hear(heartbeat, sync(at(7, 3)));
  for (let i = 0; i < 20; i++) { pass(10_000); hear(heartbeat); }
  assert.deepEqual(links, [], "heartbeats are signs of life");
  pass(25_000);
  assert.deepEqual(links, []);
  pass(2000);
  assert.deepEqual(links[0], ["lost", "nothing heard for 27 s: reconnecting"]);
  assert.equal(seen.closed, 1);
  hear(frame(7, 4)); // of the connection that was given up
  assert.equal(client.failures, 1);
  pass(1000);
  assert.equal(seen.connects.length, 2);
  client.opened();
  assert.equal(last().subscribe.held[0].position.seq, "3");
  hear({ tile: id, sync: { from: at(7, 3), tail: [frame(7, 4).frame], position: at(7, 4) } });
  assert.equal(client.tiles.get(id).at.seq, 4);
});

test("a handshake, a token or a first message that never comes ends", async (t) => {
  const pass = clocks(t), { client, seen } = begin(t);
  pass(33_000); // the first is open, and says nothing
  assert.equal(seen.connects.length, 2);
  pass(20_000);
  assert.equal(seen.closed, 1, "the second may open for 20 s");
  pass(3000);
  assert.equal(seen.closed, 2);
  const give = [];
  client.calls.token = () => new Promise((resolve) => give.push(resolve));
  pass(3000); // it asks for a token that does not come
  const connects = seen.connects.length, failures = client.failures;
  pass(60_000);
  assert.ok(client.failures > failures && give.length > 1);
  give[0]("late");
  for (let i = 0; i < 5; i++) await null;
  assert.equal(seen.connects.length, connects);
});

test("an old relay that has no heartbeats is not given up", (t) => {
  const pass = clocks(t), { client, hear, seen } = begin(t);
  hear(sync(at(1, 1)));
  pass(600_000);
  assert.equal(seen.connects.length, 1);
  hear({ news: { of: "a later relay" } });
  assert.ok(client.open);
});

test("a message that takes longer than the limit arrives at last", (t) => {
  const pass = clocks(t), { client, hear, seen } = begin(t);
  hear(heartbeat);
  pass(27_000);
  assert.equal(seen.closed, 1);
  pass(1000);
  client.opened();
  hear(heartbeat);
  pass(45_000); // the Sync is on its way
  assert.equal(seen.closed, 1);
  hear(sync(at(1, 1)));
  pass(27_000);
  assert.equal(seen.closed, 2, "then the limit is the relay's again");
});

test("a page that slept hears what has come before it judges", (t) => {
  const pass = clocks(t), { client, hear, seen } = begin(t);
  hear(heartbeat, sync(at(1, 1)));
  const clock = pass(1000);
  clock.wall += 3_600_000; // the monotonic clock may stand meanwhile
  pass(1000);
  hear(frame(1, 2));
  pass(20_000);
  assert.equal(seen.closed, 0);
  clock.wall += 3_600_000;
  pass(2000);
  assert.equal(seen.closed, 1, "nothing came: the connection did not outlive the sleep");
  assert.equal(client.open, false);
});

test("a session of months is not renewed at once", async (t) => {
  const { calls, client, hear, seen } = begin(t);
  client.calls.token = () => "new";
  hear({ session: { expiresInMs: String(40 * 24 * 3600 * 1000) } });
  t.mock.timers.tick(3_600_000);
  await null;
  assert.equal(seen.sent.length, 1);
  assert.ok(calls);
});

test("malformed bytes are refused", () => {
  for (const bytes of [[0], [0, 5, 1], [1, 1, 0, 0, 1, 0], [0, 0], [0, 128, 0]]) {
    assert.throws(() => events(Uint8Array.from(bytes)), WireError, String(bytes));
  }
  for (const bad of [{ epoch: "-1" }, { epoch: "x" }, { chain: "y" }]) {
    assert.throws(() => wire.position(bad), WireError);
  }
  assert.throws(() => wire.frame({ payload: "%" }), WireError);
  assert.throws(() => wire.sync({ tail: 1 }), WireError);
});
