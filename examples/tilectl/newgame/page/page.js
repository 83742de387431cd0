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
{{if .Lobby}}function connect(id) {
  gateway = new WebSocket(`${host}/intent?player=${player}&ticket=${id}`, "tilefence.intent.v1.json");
  gateway.onopen = () => say("you have a seat");
  gateway.onclose = ({ code, reason }) => { // 1008: the seat was not taken in time
    say(reason || "the gateway is gone");
    setTimeout(code === 1008 ? follow : connect, 1000, id);
  };
{{else}}(function connect() {
  gateway = new WebSocket(`${host}/intent?player=${player}`, "tilefence.intent.v1.json");
  gateway.onclose = ({ reason }) => { say(reason || "the gateway is gone"); setTimeout(connect, 1000); };
{{end}}  gateway.onmessage = ({ data }) => { const a = JSON.parse(data); say(a.error?.message ?? (a.why ? `${a.outcome}: ${a.why}` : a.outcome)); };
  intents = endSilent(gateway, answered);
}{{if .Lobby}}
const ticket = (id) => `/lobby/tickets/${id}?player=${player}`;
async function find() {
  const id = crypto.randomUUID();
  const answer = await fetch(ticket(id), { method: "PUT", body: "{}" });
  if (!answer.ok) return say(await answer.text());
  sessionStorage.ticket = id; // a page that is loaded anew goes on with it
  follow(id);
}
async function follow(id) {
  if ((await fetch(ticket(id))).status === 404) return sessionStorage.removeItem("ticket"); // it ended long ago
  const changes = new WebSocket(host + ticket(id), "tilefence.ticket.v1");
  changes.onmessage = ({ data }) => {
    const t = JSON.parse(data);
    if (t.state !== "seated") return say(t.why ?? t.state);
    changes.onclose = null;
    changes.close();
    here = t.tile;
    connect(id);
  };
  changes.onclose = ({ code }) => code === 1000 ? sessionStorage.removeItem("ticket") : setTimeout(follow, 1000, id);
}
async function leave() {
  if (sessionStorage.ticket) await fetch(ticket(sessionStorage.ticket), { method: "DELETE" });
  sessionStorage.removeItem("ticket");
  location.reload();
}
document.querySelector("#find").onclick = () => { if (!sessionStorage.ticket) find(); };
document.querySelector("#leave").onclick = leave;
if (sessionStorage.ticket) follow(sessionStorage.ticket);
{{- else}})();{{end}}
function ask(body) {
  if (gateway{{if .Lobby}}?{{end}}.readyState !== WebSocket.OPEN) return say("not connected yet");
  intents.send(JSON.stringify({ id: String(++number), tile: here, kind: "move", body: btoa(body) }));
}
document.querySelector("#score").onclick = () => ask("");
document.querySelector("#door").onclick = () => ask("door");
