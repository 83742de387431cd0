// The adapter with which the conformance kit checks relay/relayjs, under node 20 or newer:
//
//   node --experimental-websocket adapter.mjs

import { createInterface } from "node:readline";

import { Client, events, parts } from "../../../relay/relayjs/client.js";
import { Gateway } from "../../../relay/relayjs/gateway.js";

// A browser names its page's origin, and is then told by a status why it is refused.
const Native = globalThis.WebSocket;
globalThis.WebSocket = class extends Native {
  constructor(url, protocols) { super(url, { protocols, headers: { origin: url.replace(/^ws(.*\/\/[^/]*).*/, "http$1") } }); }
};

const show = (...words) => process.stdout.write(`${words.join(" ").trim()}\n`);
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const numbers = (list) => list.split(",").map(Number);
const token = { now: undefined }, divided = new Set();
let client, gateway;
const tiles = [];

/** The state of some areas, as area:bytes. */
function state(tile, blob, areas) {
  if (!divided.has(tile)) return [`0:${hex(blob)}`];
  return [...parts(blob, "snapshot")].filter(([a]) => areas.includes(a)).map(([a, part]) => `${a}:${hex(part.take(part.left))}`);
}

const calls = {
  restore: (tile, blob, areas) => show("state", tile, ...state(tile, blob, areas)),
  open: (tile, blob, areas) => show("open", tile, ...state(tile, blob, areas)),
  apply(tile, frame, arrived, areas) {
    const held = areas ?? (divided.has(tile) ? client.tiles.get(tile).held : undefined);
    show("batch", tile, ...events(frame.payload, held).map(([a, e]) => `${a}:${hex(e)}`));
  },
  link(word, text) { if (word === "lost" || word === "ended") show(word, text); },
  trouble: (text, code) => { if (code) show("error", code); },
};

const withToken = (more) => token.now === undefined ? more : { ...more, token: () => token.now };

function answered(name, a) {
  if (a.crossed) show("crossed", name, a.crossed.to);
  if (a.unknown) show("answer", name, "unknown");
  else if (a.error) show("answer", name, "error", a.error.code);
  else show("answer", name, a.outcome, a.why ?? "");
}

const commands = {
  token: (value) => { token.now = value; },
  relay(url) {
    client = new Client(url, tiles, withToken(calls));
    client.connect();
  },
  join(tile, areas, watch) {
    if (areas) divided.add(tile);
    const what = areas ? { id: tile, areas: numbers(areas), watch: numbers(watch) } : tile;
    if (client) client.join(what);
    else tiles.push(what);
  },
  watch: (tile, areas) => client.watch(tile, numbers(areas)),
  leave: (tile) => client.leave(tile),
  gateway(url) {
    gateway = new Gateway(url, withToken({
      told: (bytes) => show("told", hex(bytes)),
      link(word, text) { if (word === "lost" || word === "ended") show(word, text); },
    }));
    gateway.connect();
  },
  move: async (name, tile, body) => answered(name, await gateway.move(tile, Buffer.from(body, "hex"))),
  act: async (name, tile, action, asset, cost, body) =>
    answered(name, await gateway.act(tile, { action, asset, cost: Number(cost), body: Buffer.from(body, "hex") })),
};

show("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(" ");
  commands[command]?.(...words);
}
process.exit(0);
