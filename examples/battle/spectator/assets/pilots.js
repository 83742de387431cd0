// The pilots: ships whose plans take seconds. How many wait, for how long, and which.

import { shortTile } from "./palette.js";
import { digits } from "./panel.js";

const $ = (id) => document.getElementById(id);
const rows = 6; // ships that are named
const longest = 5000; // ms that fill a bar

function write(node, text) { if (node.textContent !== text) node.textContent = text; }

/** Shows what the servers say of their planners. */
export function showPilots(pilots) {
  $("pilots").hidden = !pilots;
  if (!pilots) return;
  const killed = pilots.killed ? `, ${digits(pilots.killed)} killed so far` : "";
  write($("pilots-workers"), `${pilots.ships} ships, ${pilots.workers} planners${killed}`);
  write($("pilots-waiting"), digits(pilots.waits.length - pilots.running));
  write($("pilots-running"), digits(pilots.running));
  write($("pilots-applied"), digits(pilots.applied));
  write($("pilots-refused"), digits(pilots.refused));
  write($("pilots-stale"), digits(pilots.stale));
  write($("pilots-tokens"), digits(pilots.tokens));
  const list = $("pilots-list");
  while (list.children.length < Math.min(rows, pilots.waits.length)) {
    const row = document.createElement("li");
    row.append(document.createElement("b"), document.createElement("span"), document.createElement("i"));
    list.append(row);
  }
  while (list.children.length > pilots.waits.length) list.lastElementChild.remove();
  [...list.children].forEach((row, n) => {
    const w = pilots.waits[n];
    write(row.children[0], w.ship);
    write(row.children[1], `${shortTile(w.tile)} · ${w.running ? "planning" : "waits"} ${(w.age / 1000).toFixed(1)} s${w.player ? " · a player’s" : ""}`);
    row.children[2].style.width = `${Math.min(100, (100 * w.age) / longest)}%`;
    row.classList.toggle("running", w.running);
  });
}
