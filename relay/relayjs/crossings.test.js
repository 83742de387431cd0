import assert from "node:assert/strict";
import { test } from "node:test";

import { Crossings } from "./crossings.js";

/** Numbers from 0 to 1, the same for the same seed. */
function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

test("every frame shows an entity once, in whatever order the tiles' events come", () => {
  const chance = random(1), streams = { a: [], b: [] }, ships = [];
  for (let i = 0; i < 100; i++) { // each stay is an entered and a left of one tile, in that tile's order
    ships.push(`ship${i}`);
    streams.a.push(["enter", `ship${i}`, 0]);
  }
  for (let hop = 0; hop < 100; hop++) {
    for (const ship of ships) {
      const from = hop % 2 ? "b" : "a", to = hop % 2 ? "a" : "b";
      streams[from].push(["leave", ship, hop, to]);
      streams[to].push(["enter", ship, hop + 1]);
    }
  }
  const crossings = new Crossings(), latest = new Map();
  crossings.watch("a");
  crossings.watch("b");
  const next = (tile) => {
    const [call, ship, hop, to] = streams[tile].shift();
    if (call === "enter") crossings.enter(tile, ship, hop, ship);
    else crossings.leave(tile, ship, hop, to);
    const last = latest.get(ship);
    if (!last || hop > last.hop || (hop === last.hop && call === "leave")) latest.set(ship, { hop, left: call === "leave" });
  };
  for (let i = 0; i < 100; i++) next("a");
  while (streams.a.length + streams.b.length) {
    const tile = !streams.b.length || (streams.a.length && chance() < 0.5) ? "a" : "b";
    for (let n = 1 + Math.floor(chance() * 150); n > 0 && streams[tile].length; n--) next(tile);
    const drawn = [...crossings.all()];
    assert.equal(drawn.length, ships.length);
    for (const [ship, s] of drawn) assert.deepEqual({ hop: s.hop, left: s.to !== undefined }, latest.get(ship), ship);
  }
});

test("a player is followed", () => {
  const did = [];
  const c = new Crossings({ join: (tile) => did.push(`join ${tile}`), quit: (tile) => did.push(`quit ${tile}`) });
  c.follow("ann");
  c.watch("z"); // a neighbour, whoever is there
  c.crossed("a");
  assert.equal(c.enter("a", "ann", 0, "ship"), true);
  c.leave("a", "ann", 0, "b"); // no answer came
  assert.deepEqual([c.get("ann").tile, c.get("ann").to, c.get("ann").value], ["a", "b", "ship"]);
  assert.equal(c.enter("a", "ann", 1, "ship"), true, "it comes back");
  c.crossed("c");
  c.leave("a", "ann", 1, "c");
  assert.equal(c.enter("c", "ann", 2, "ship"), true);
  assert.deepEqual(did, ["join a", "join b", "quit b", "join c", "quit a"]);
  assert.equal(c.enter("a", "bob", 0, "ship"), false, "it is not watched any more");
});

test("a tile that is watched in part is joined for the player", () => {
  const did = [];
  const c = new Crossings({ join: (tile) => did.push(`join ${tile}`), quit: (tile) => did.push(`quit ${tile}`) });
  c.follow("ann");
  c.crossed("a");
  c.watch("b", 1, 2); // its rim
  c.watch("z");
  c.enter("a", "ann", 0, "ship");
  c.enter("b", "bob", 0, "ship");
  c.leave("a", "ann", 0, "b");
  c.watch("a", 3);
  assert.equal(c.enter("b", "ann", 1, "ship"), true);
  assert.equal(c.enter("a", "eve", 0, "ship"), true, "it is still watched in part");
  c.leave("b", "ann", 1, "z");
  assert.equal(c.enter("z", "ann", 2, "ship"), true);
  assert.deepEqual(did, ["join a", "join b", "quit a", "quit b"], "z is watched in whole");
  assert.deepEqual([...c.all()].map(([name]) => name).sort(), ["ann", "bob", "eve"]);
});

test("what is not in sight is not drawn", () => {
  const c = new Crossings(), drawn = () => [...c.all()].map(([name]) => name).sort();
  c.watch("a");
  c.watch("b");
  for (const name of "klmn") c.enter("a", name, 0, name);
  c.leave("a", "k", 0, "x");
  c.end("l", 0);
  c.leave("a", "m", 0, "b");
  assert.deepEqual(drawn(), ["m", "n"]);
  assert.equal(c.enter("a", "l", 0, "l"), false, "a state that is older than its end");
  c.restore("a", (name) => name !== "n");
  assert.deepEqual(drawn(), ["m"]);
  assert.equal(c.enter("a", "n", 0, "n"), true, "it entered after that state");
  c.unwatch("a");
  assert.deepEqual(drawn(), ["m"]);
  c.unwatch("b");
  assert.deepEqual(drawn(), []);
  c.watch("b");
  assert.equal(c.enter("b", "m", 1, "m"), true, "it is there now");
});
