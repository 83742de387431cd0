import { Client, events } from "/relay/client.js";
import { endSilent } from "/relay/silence.js";

const plaza = "85283083fffffff", garden = "85283087fffffff"; // with a door between them
const host = location.origin.replace("http", "ws"), text = new TextDecoder();
const player = sessionStorage.player ??= `player-${Math.random().toString(36).slice(2, 6)}`;
const say = (what) => { document.querySelector("output").textContent = `${player}: ${what}`; };
const points = { [plaza]: {}, [garden]: {} };
let here = plaza; // where the player is, or was last

function show() {
  here = [plaza, garden].find((tile) => player in points[tile]) ?? here;
  document.querySelectorAll("ol").forEach((list, i) => {
    const best = Object.entries(points[[plaza, garden][i]]).sort((a, b) => b[1] - a[1]);
    list.replaceChildren(...best.map(([who, n]) => Object.assign(document.createElement("li"), { textContent: `${who} ${n}` })));
  });
}

new Client(`${host}/view`, [plaza, garden], {
  restore(tile, blob) { points[tile] = blob.length ? JSON.parse(text.decode(blob)) : {}; show(); },
  apply(tile, frame) {
    for (const [, bytes] of events(frame.payload)) {
      const e = JSON.parse(text.decode(bytes));
      if (e.leaves) delete points[tile][e.who];
      else points[tile][e.who] = (points[tile][e.who] ?? 0) + (e.points ?? 0);
    }
    show();
  },
  link: (state, words) => say(words),
}).connect();

const answered = 25_000; // ms in which a gateway answers an intent, or is gone
let gateway, intents, number = 0;
(function connect() {
  gateway = new WebSocket(`${host}/intent?player=${player}`, "tilefence.intent.v1.json");
  gateway.onclose = ({ reason }) => { say(reason || "the gateway is gone"); setTimeout(connect, 1000); };
  gateway.onmessage = ({ data }) => { const a = JSON.parse(data); say(a.error?.message ?? (a.why ? `${a.outcome}: ${a.why}` : a.outcome)); };
  intents = endSilent(gateway, answered);
})();
function ask(body) {
  if (gateway.readyState !== WebSocket.OPEN) return say("not connected yet");
  intents.send(JSON.stringify({ id: String(++number), tile: here, kind: "move", body: btoa(body) }));
}
document.querySelector("#score").onclick = () => ask("");
document.querySelector("#door").onclick = () => ask("door");
