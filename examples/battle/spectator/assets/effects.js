// What lights up and is gone: shots, hits, explosions, warps. Effects are drawn in screen coordinates from
// places in the plane, and drop out of the list when their time is over.

const fire = [255, 206, 122], ember = [255, 110, 74], shieldBlue = [126, 211, 255], violet = [190, 160, 255], wake = [116, 240, 214];
const rgba = (c, a) => `rgba(${c[0]},${c[1]},${c[2]},${a})`;
const afterglow = 260; // ms a shot is seen after it has landed
const most = 600; // effects at once; a page in the background must not collect them

export class Effects {
  constructor() { this.all = []; }

  #add(start, length, draw) {
    if (this.all.length < most) this.all.push({ start, end: start + length, length, draw });
  }

  get busy() { return this.all.length > 0; }

  draw(ctx, camera, now) {
    this.all = this.all.filter((e) => e.end > now);
    ctx.globalCompositeOperation = "lighter";
    for (const e of this.all) if (e.start <= now) e.draw(ctx, camera, (now - e.start) / e.length);
    ctx.globalCompositeOperation = "source-over";
    ctx.lineWidth = 1;
  }

  /** A shot; `from` and `to` are functions that give places, since both ships may be moving. */
  shot(start, travel, from, to) {
    const length = travel + afterglow;
    this.#add(start, length, (ctx, camera, t) => {
      const [ax, ay] = camera.toScreen(...from()), [bx, by] = camera.toScreen(...to());
      const head = Math.min(1, (t * length) / travel), fade = Math.min(1, ((1 - t) * length) / afterglow);
      const tail = Math.max(0, head - 0.55);
      const g = ctx.createLinearGradient(ax, ay, bx, by);
      g.addColorStop(0, rgba(fire, 0));
      g.addColorStop(Math.max(0.001, tail), rgba(fire, 0.06 * fade));
      g.addColorStop(Math.max(0.002, head), rgba(fire, 0.95 * fade));
      ctx.strokeStyle = g;
      ctx.lineWidth = Math.max(1.3, camera.scale * 14);
      ctx.beginPath();
      ctx.moveTo(ax, ay);
      ctx.lineTo(ax + (bx - ax) * head, ay + (by - ay) * head);
      ctx.stroke();
    });
  }

  /** A hit: blue where the shield took it, fire where the hull did. */
  hit(start, at, shielded) {
    const c = shielded ? shieldBlue : ember;
    this.#add(start, 320, (ctx, camera, t) => this.#ring(ctx, camera, at(), c, 40 + 50 * t, 0.8 * (1 - t), 18 * (1 - t)));
  }

  /** A shield going up. */
  charge(start, at) {
    this.#add(start, 520, (ctx, camera, t) => this.#ring(ctx, camera, at(), shieldBlue, 110 - 60 * t, 0.9 * (1 - t), 14));
  }

  explosion(start, x, y, calm) {
    const sparks = Array.from({ length: calm ? 0 : 11 }, (_, i) => ({ a: i * 2.4, v: 70 + ((i * 53) % 90) }));
    this.#add(start, calm ? 500 : 900, (ctx, camera, t) => {
      const [sx, sy] = camera.toScreen(x, y), out = 1 - (1 - t) ** 3;
      const r = Math.max(7, 120 * camera.scale) * (0.35 + 0.65 * out);
      const g = ctx.createRadialGradient(sx, sy, 0, sx, sy, r);
      g.addColorStop(0, rgba([255, 244, 214], 0.9 * (1 - t)));
      g.addColorStop(0.35, rgba(fire, 0.5 * (1 - t)));
      g.addColorStop(1, rgba(ember, 0));
      ctx.fillStyle = g;
      ctx.beginPath();
      ctx.arc(sx, sy, r, 0, 7);
      ctx.fill();
      this.#ring(ctx, camera, [x, y], ember, 60 + 150 * out, 0.7 * (1 - t), 12 * (1 - t));
      ctx.fillStyle = rgba(fire, 1 - t);
      const dot = Math.max(1, 9 * camera.scale);
      for (const s of sparks) {
        const d = s.v * out * 2 * Math.max(camera.scale, 0.05);
        ctx.fillRect(sx + Math.cos(s.a) * d - dot / 2, sy + Math.sin(s.a) * d - dot / 2, dot, dot);
      }
    });
  }

  /** A ship gone from one place and come to another, or come from nowhere. */
  warp(start, from, to) {
    const away = (ctx, camera, t) => this.#ring(ctx, camera, from, violet, 90 * (1 - t), 0.9 * (1 - t), 14);
    const here = (ctx, camera, t) => this.#ring(ctx, camera, to, violet, 30 + 120 * t, 0.9 * (1 - t), 16 * (1 - t));
    if (from) this.#add(start, 420, away);
    this.#add(start + (from ? 140 : 0), 560, here);
  }

  /** A ship has crossed a border: its way, and a mark on the border, for some seconds. */
  crossing(start, from, to) {
    const middle = [(from[0] + to[0]) / 2, (from[1] + to[1]) / 2];
    this.#add(start, 5000, (ctx, camera, t) => {
      const [ax, ay] = camera.toScreen(...from), [bx, by] = camera.toScreen(...to), [mx, my] = camera.toScreen(...middle);
      ctx.strokeStyle = rgba(wake, 0.9 * (1 - t));
      ctx.lineWidth = 2.5;
      ctx.setLineDash([7, 5]);
      ctx.beginPath();
      ctx.moveTo(ax, ay);
      ctx.lineTo(bx, by);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.save();
      ctx.translate(mx, my);
      ctx.rotate(Math.atan2(by - ay, bx - ax));
      ctx.fillStyle = rgba(wake, 0.95 * (1 - t));
      const r = Math.max(7, 26 * camera.scale);
      for (const x of [-0.2, 0.8]) { // two arrow heads, the way that it went
        ctx.beginPath();
        ctx.moveTo(r * x + r, 0);
        ctx.lineTo(r * x - r * 0.6, r * 0.8);
        ctx.lineTo(r * x - r * 0.1, 0);
        ctx.lineTo(r * x - r * 0.6, -r * 0.8);
        ctx.fill();
      }
      ctx.restore();
    });
  }

  #ring(ctx, camera, [x, y], colour, radius, alpha, width) {
    const [sx, sy] = camera.toScreen(x, y);
    ctx.strokeStyle = rgba(colour, Math.max(0, alpha));
    ctx.lineWidth = Math.min(5, Math.max(1, width * camera.scale));
    ctx.beginPath();
    ctx.arc(sx, sy, Math.max(3, radius * camera.scale), 0, 7);
    ctx.stroke();
  }
}
