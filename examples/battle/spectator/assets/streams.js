// The streams of the tiles: how far their consumers are, who holds the trim floor, and what would be lost if Redis and
// the owner died now.

import { digits } from "./panel.js";

const $ = (id) => document.getElementById(id);
const least = 30; // batches that a line is long, at least
const most = 300; // and at most: a consumer that is farther behind is at the left end

function write(node, text) { if (node.textContent !== text) node.textContent = text; }

/** The kind of a consumer: there may be many relays. */
const kind = (consumer) => consumer.split(":")[0];

/** Says how many ticks are lost, and how long they lasted. */
export function lost(ticks, tickMs) {
  if (ticks === undefined) return "–";
  if (ticks === 0) return "nothing";
  return `${digits(ticks)} ${ticks === 1 ? "tick" : "ticks"} · ${((ticks * tickMs) / 1000).toFixed(1)} s`;
}

export class Streams {
  constructor(tickMs) {
    this.tickMs = tickMs;
    this.lines = new Map();
  }

  /** Makes a tile's line: its end is the head of the stream. */
  line(id) {
    const line = document.createElement("div"), track = document.createElement("div"), text = document.createElement("span");
    line.className = "stream";
    track.className = "track";
    track.append(document.createElement("i"));
    track.firstElementChild.className = "lost";
    line.append(track, text);
    this.lines.set(id, { line, track, text, marks: new Map() });
    return line;
  }

  /** Shows what the servers say of all tiles. */
  show(tiles) {
    const behind = tiles.flatMap((t) => (t.marks ?? []).map((m) => m.behind));
    const length = Math.min(most, Math.max(least, ...behind));
    for (const t of tiles) if (this.lines.has(t.tile)) this.#show(t, length);
    const known = tiles.map((t) => t.lost).filter((n) => n !== undefined);
    write($("risk-lost"), known.length ? `${lost(Math.max(...known), this.tickMs)} lost` : "–");
  }

  #show(t, length) {
    const { line, track, text, marks } = this.lines.get(t.tile);
    const at = (batches) => `${(100 * Math.min(1, batches / length)).toFixed(1)}%`;
    write(text, lost(t.lost, this.tickMs));
    track.firstElementChild.style.width = at(t.at_risk);
    for (const m of t.marks ?? []) {
      if (!marks.has(m.consumer)) {
        marks.set(m.consumer, document.createElement("i"));
        track.append(marks.get(m.consumer));
      }
      const mark = marks.get(m.consumer);
      mark.className = `mark ${kind(m.consumer)}`;
      mark.classList.toggle("floor", m.consumer === t.floor);
      mark.style.right = at(m.behind);
    }
    const now = new Set((t.marks ?? []).map((m) => m.consumer));
    for (const [consumer, mark] of marks) {
      if (now.has(consumer)) continue;
      mark.remove();
      marks.delete(consumer);
    }
    const floor = (m) => (m.consumer === t.floor ? ", holds the floor" : "");
    line.title = [...(t.marks ?? []).map((m) => `${m.consumer}: ${digits(m.behind)} batches behind${floor(m)}`),
      `lost with Redis and the owner: ${lost(t.lost, this.tickMs)}`].join("\n");
  }
}
