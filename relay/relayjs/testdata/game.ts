// A game in TypeScript, as a studio writes it: everything that the package exports, once. It is compiled against the
// package as npm installs it, and then run without a network.
import { Client, Reader, WireError, events, parts, subprotocol, type Calls, type Frame } from "@tilefence/relay";
import { Crossings } from "@tilefence/relay/crossings.js";
import { Gateway, type Answer } from "@tilefence/relay/gateway.js";
import { endSilent } from "@tilefence/relay/silence.js";

interface Ship { cell: number }

const ships = new Crossings<Ship>({ join: (tile) => client.join(tile), quit: (tile) => client.leave(tile) });
const seen: string[] = [];
const calls: Calls = {
  restore(tile: string, blob: Uint8Array, areas: number[]) { seen.push(`${tile} ${blob.length} ${areas.join()}`); },
  apply(tile: string, frame: Frame) {
    for (const [area, event] of events(frame.payload)) seen.push(`${tile} ${area} ${new TextDecoder().decode(event)}`);
    for (const [, part] of parts(frame.payload, "batch")) if (!(part instanceof Reader)) throw new WireError("no reader");
  },
  link(state) { if (state === "ended") seen.push("ended"); },
  async token() { return "token"; },
};
const sent: string[] = [];
const client = new Client("ws://relay", ["85283473fffffff", { id: "85283447fffffff", areas: [0, 2], watch: [0] }], calls,
  { connect: (_, protocols) => { sent.push(...protocols); client.opened(); }, send: (text) => sent.push(text) });

async function play(gateway: Gateway): Promise<Answer> {
  const moved = await gateway.move("85283473fffffff", new Uint8Array([1]));
  return moved.outcome ? gateway.act("85283473fffffff", { action: "a", body: new Uint8Array(0), cost: 3 }) : moved;
}

// @ts-expect-error: a tile is text
const never = () => client.join(7);
// @ts-expect-error: an outcome is one of four
const wrong: Answer = { outcome: "won" };

client.leave("85283447fffffff");
client.connect();
setTimeout(async () => {
  client.message(JSON.stringify({ tile: "85283473fffffff", sync: { replace: true } }), Date.now());
  client.message(JSON.stringify({ tile: "85283473fffffff", frame: { kind: 1, position: { epoch: "1", seq: "1", chain: "7" },
    payload: "AAUEbW92ZQ==" } }), Date.now());
  ships.crossed("85283473fffffff");
  ships.enter("85283473fffffff", "ann", 0, { cell: 3 });
  const gateway = new Gateway("ws://gateway");
  const answer = play(gateway);
  gateway.close();
  console.log(JSON.stringify({ sent: sent[0] === subprotocol && sent[1], seen, cell: ships.get("ann")?.value.cell,
    unknown: (await answer).unknown, frames: client.counts.frames, silence: typeof endSilent, wrong: !!wrong && !!never }));
  client.close();
}, 10);
