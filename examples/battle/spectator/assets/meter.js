// What this page measures by itself: when frames arrive, and how long after their commit.

import { css, rgb } from "./palette.js";

const window60 = 60_000; // ms that figures look back
const most = 6000; // samples kept: a hundred a second
const budget = 100; // ms, the aim for p99

/** How far the server's clock is ahead of the page's, from polls: the poll with the shortest round trip
 *  of the last few says it best. */
export class Clock {
  constructor() { this.polls = []; }

  note(sent, received, serverMillis) {
    this.polls.push({ trip: received - sent, ahead: serverMillis - (sent + received) / 2 });
    if (this.polls.length > 20) this.polls.shift();
  }

  get ahead() { return this.polls.reduce((best, p) => (p.trip < best.trip ? p : best), { trip: Infinity, ahead: 0 }).ahead; }

  /** Now, by the server's clock, in ms since 1970. */
  now() { return performance.timeOrigin + performance.now() + this.ahead; }
}

export class Meter {
  constructor(canvas) {
    this.canvas = canvas;
    this.samples = []; // { at, ms, tile }
  }

  frame(ms, tile) {
    this.samples.push({ at: performance.now(), ms: Math.max(0, ms), tile });
    if (this.samples.length > most) this.samples.splice(0, most / 4);
  }

  #recent() {
    const since = performance.now() - window60;
    const first = this.samples.findIndex((s) => s.at >= since);
    if (first > 0) this.samples.splice(0, first);
    else if (first < 0) this.samples.length = 0;
    return this.samples;
  }

  /** p50 and p99 of the latency; null without samples. */
  figures() {
    const recent = this.#recent();
    if (recent.length === 0) return null;
    const ms = recent.map((s) => s.ms).sort((a, b) => a - b);
    const rank = (q) => ms[Math.min(ms.length - 1, Math.floor(q * ms.length))];
    return { p50: rank(0.5), p99: rank(0.99), samples: recent.length };
  }

  /** Draws a dot for each batch of the last minute: right is now, up is slow. ownerOf colours the dots. */
  draw(ownerOf) {
    const { canvas } = this, ratio = Math.min(devicePixelRatio || 1, 2);
    const w = canvas.clientWidth, h = canvas.clientHeight;
    if (!w || !h) return;
    if (canvas.width !== Math.round(w * ratio)) Object.assign(canvas, { width: Math.round(w * ratio), height: Math.round(h * ratio) });
    const ctx = canvas.getContext("2d"), now = performance.now(), recent = this.#recent();
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, w, h);
    const slowest = recent.reduce((m, s) => Math.max(m, s.ms), 0);
    const top = slowest > 400 ? 1000 : slowest > 140 ? 400 : 140;
    const y = (ms) => h - 2 - (Math.min(ms, top) / top) * (h - 8);
    ctx.strokeStyle = "rgba(255,255,255,.08)";
    ctx.beginPath();
    ctx.moveTo(0, h - 1.5);
    ctx.lineTo(w, h - 1.5);
    ctx.stroke();
    ctx.setLineDash([3, 4]);
    ctx.strokeStyle = "rgba(255,143,122,.6)";
    ctx.beginPath();
    ctx.moveTo(0, y(budget));
    ctx.lineTo(w, y(budget));
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.fillStyle = "rgba(255,160,140,.85)";
    ctx.font = "10px system-ui, sans-serif";
    ctx.fillText("100 ms", 2, y(budget) - 3);
    for (const s of recent) {
      ctx.fillStyle = css(rgb(ownerOf(s.tile)), 0.75);
      ctx.fillRect(w - 3 - ((now - s.at) / window60) * (w - 4), y(s.ms) - 1.25, 2.5, 2.5);
    }
  }
}
