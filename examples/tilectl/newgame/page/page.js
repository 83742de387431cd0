import { Client, events } from "/relay/client.js";
import { endSilent } from "/relay/silence.js";

const plaza = "85283083fffffff", host = location.origin.replace("http", "ws"), text = new TextDecoder();
const player = sessionStorage.player ??= `player-${Math.random().toString(36).slice(2, 6)}`;
const say = (what) => { document.querySelector("output").textContent = `${player}: ${what}`; };
let points = {};

function show() {
  const best = Object.entries(points).sort((a, b) => b[1] - a[1]);
  document.querySelector("ol").replaceChildren(...best.map(([who, n]) =>
    Object.assign(document.createElement("li"), { textContent: `${who} ${n}` })));
}

new Client(`${host}/view`, [plaza], {
  restore(tile, blob) { points = blob.length ? JSON.parse(text.decode(blob)) : {}; show(); },
  apply(tile, frame) {
    for (const [, event] of events(frame.payload)) points[text.decode(event)] = (points[text.decode(event)] ?? 0) + 1;
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
document.querySelector("button").onclick = () => {
  if (gateway.readyState !== WebSocket.OPEN) return say("not connected yet");
  intents.send(JSON.stringify({ id: String(++number), tile: plaza, kind: "move" }));
};
