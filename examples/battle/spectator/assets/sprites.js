// The ships of one tile as they are drawn: where each is between two cells right now, where it points,
// and what its events light up.

import { Spawned, Moved, Fired, Shielded, Warped, Returned, Left, Entered, Departed } from "./wire.js";

const healthy = [226, 238, 255], hurt = [255, 122, 92], shieldBlue = [126, 211, 255];
const rgba = (c, a) => `rgba(${c[0]},${c[1]},${c[2]},${a})`;
const ease = (t) => t * t * (3 - 2 * t);
const text = new TextDecoder();

export class Sprites {
  /** cells is flat: x, y of each cell's centre, pitch apart. tick is how long a step takes, in ms. */
  constructor(cells, pitch, tick, effects) {
    this.cells = cells;
    this.pitch = pitch;
    this.usual = this.tick = tick;
    this.effects = effects;
    this.all = new Map(); // by ship number
  }

  /** A tick lasts so many tick intervals. */
  pace(n) { this.tick = this.usual * n; }

  #centre(cell) { return [this.cells[2 * cell], this.cells[2 * cell + 1]]; }

  /** Starts over: every ship stands on its cell. */
  reset(ships) {
    this.all.clear();
    for (const s of ships) this.#put(s);
  }

  #put(ship) {
    const [x, y] = this.#centre(ship.cell);
    const sprite = {
      ship, from: [x, y], to: [x, y], start: 0, angle: (ship.id * 2.4) % 6.28,
      gone: ship.hull > 0 ? Infinity : 0, // when it is destroyed, to the eye: the shot has to arrive first
      hull: ship.hull, // likewise
    };
    this.all.set(ship.id, sprite);
    return sprite;
  }

  /** Where a sprite is. */
  at(sprite, now) {
    const t = Math.min(1, Math.max(0, (now - sprite.start) / this.tick));
    const k = ease(t);
    return [sprite.from[0] + (sprite.to[0] - sprite.from[0]) * k, sprite.from[1] + (sprite.to[1] - sprite.from[1]) * k];
  }

  /** Shows one tick's events, as Fleet.apply returns them. calm: without motion. */
  react(events, now, calm) {
    // A tile's whole tick arrives at once; its shots are spread over the tick, or all would flash together.
    const spread = calm ? 0 : this.tick * 0.55;
    const entered = new Set(events.filter((e) => e.kind === Entered).map((e) => e.ship.id));
    events.forEach((e) => {
      if (e.kind === Left) { // for another area; out of sight, unless that is shown too
        if (!entered.has(e.ship.id)) this.all.delete(e.ship.id);
        return;
      }
      if (e.kind === Departed) { // for another tile
        this.all.delete(e.ship.id);
        return;
      }
      const sprite = e.ship && (this.all.get(e.ship.id) ?? this.#put(e.ship));
      switch (e.kind) {
        case Entered:
          sprite.ship = e.ship;
          if (this.#near(sprite, e.cell)) this.#step(sprite, e.cell, now, calm);
          else this.#jump(sprite, e, now);
          break;
        case Moved:
          this.#step(sprite, e.cell, now, calm);
          break;
        case Warped: case Returned: case Spawned:
          this.#jump(sprite, e, now);
          break;
        case Shielded:
          this.effects.charge(now, () => this.at(sprite, performance.now()));
          break;
        case Fired:
          this.#shot(sprite, e, now + spread * ((e.target.id * 0.618) % 1), calm);
          break;
      }
    });
  }

  /** Whether a sprite's way to a cell is a step. */
  #near(sprite, cell) {
    const [x, y] = this.#centre(cell), [dx, dy] = [sprite.to[0] - x, sprite.to[1] - y];
    return Math.hypot(dx, dy) < 1.6 * this.pitch;
  }

  #step(sprite, cell, now, calm) {
    sprite.from = calm ? this.#centre(cell) : this.at(sprite, now);
    sprite.to = this.#centre(cell);
    sprite.start = now;
    const dx = sprite.to[0] - sprite.from[0], dy = sprite.to[1] - sprite.from[1];
    if (dx || dy) sprite.angle = Math.atan2(dy, dx);
  }

  /** A ship leaves for a place in another tile, as far as the border: its sprite on the way. */
  leave(ship, [x, y], now) {
    const sprite = this.all.get(ship.id) ?? this.#put(ship), from = this.#centre(ship.cell);
    const dx = x - from[0], dy = y - from[1], d = Math.hypot(dx, dy) || 1;
    const to = [from[0] + (dx / d) * this.pitch * 0.6, from[1] + (dy / d) * this.pitch * 0.6];
    return { ...sprite, from, to, start: now, angle: Math.atan2(dy, dx) };
  }

  /** A ship that has come into sight sails from a place, in another tile. */
  sail(ship, from, now) {
    const sprite = this.all.get(ship.id);
    Object.assign(sprite, { from, start: now, angle: Math.atan2(sprite.to[1] - from[1], sprite.to[0] - from[0]) });
  }

  /** Where a ship is, by its cell. */
  place(ship) { return this.#centre(ship.cell); }

  #jump(sprite, e, now) {
    const before = e.kind === Warped || e.kind === Entered ? this.at(sprite, now) : null;
    sprite.from = sprite.to = this.#centre(e.cell);
    sprite.gone = Infinity;
    sprite.hull = e.ship.hull;
    this.effects.warp(now, before, sprite.to);
  }

  #shot(sprite, e, start, calm) {
    const target = this.all.get(e.target.id) ?? this.#put(e.target);
    const travel = calm ? 1 : 170, lands = start + travel;
    const from = () => this.at(sprite, performance.now()), to = () => this.at(target, performance.now());
    if (sprite) this.effects.shot(start, travel, from, to);
    this.effects.hit(lands, to, e.shield > 0 || e.hull === target.hull);
    target.hull = e.hull;
    if (e.hull === 0) {
      target.gone = lands;
      const [x, y] = target.to;
      this.effects.explosion(lands, x, y, calm);
    }
  }

  /** The ship in play that is drawn within some distance of a place, the nearest one; null: none. */
  nearest(x, y, within, now) {
    let best = null;
    for (const s of this.all.values()) {
      const [sx, sy] = this.at(s, now), d = Math.hypot(sx - x, sy - y);
      if (d < within && s.gone > now) [best, within] = [s.ship, d];
    }
    return best;
  }

  /** Whether anything is under way. */
  moving(now) {
    for (const s of this.all.values()) if (now - s.start < this.tick || (s.gone > now && s.gone < Infinity)) return true;
    return false;
  }

  /** Draws all sprites of ships for which shown says so. */
  draw(ctx, camera, now, shown, all = this.all.values()) {
    const size = Math.min(24, Math.max(3.6, this.pitch * camera.scale * 0.46));
    const [l, t] = camera.toWorld(-20, -20), [r, b] = camera.toWorld(camera.width + 20, camera.height + 20);
    for (const s of all) {
      const [x, y] = this.at(s, now);
      if (!shown(s.ship) || x < l || x > r || y < t || y > b) continue;
      const [sx, sy] = camera.toScreen(x, y);
      if (s.gone <= now) this.#wreck(ctx, sx, sy, size);
      else this.#ship(ctx, camera, s, sx, sy, size, now);
    }
  }

  #wreck(ctx, x, y, size) {
    const r = size * 0.45;
    ctx.strokeStyle = "rgba(255,122,92,.38)";
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.moveTo(x - r, y - r);
    ctx.lineTo(x + r, y + r);
    ctx.moveTo(x + r, y - r);
    ctx.lineTo(x - r, y + r);
    ctx.stroke();
  }

  #ship(ctx, camera, s, x, y, size, now) {
    const { ship } = s;
    const left = Math.max(0, s.hull) / 100;
    const c = healthy.map((v, i) => Math.round(hurt[i] + (v - hurt[i]) * left));
    if (now - s.start < this.tick && size > 2.8) {
      const [fx, fy] = camera.toScreen(...s.from);
      ctx.strokeStyle = rgba(c, 0.28 * (1 - (now - s.start) / this.tick));
      ctx.lineWidth = size * 0.5;
      ctx.beginPath();
      ctx.moveTo(fx, fy);
      ctx.lineTo(x, y);
      ctx.stroke();
    }
    const cos = Math.cos(s.angle) * size, sin = Math.sin(s.angle) * size;
    ctx.fillStyle = rgba(c, 1);
    ctx.beginPath();
    ctx.moveTo(x + cos, y + sin);
    ctx.lineTo(x - cos * 0.75 - sin * 0.72, y - sin * 0.75 + cos * 0.72);
    ctx.lineTo(x - cos * 0.35, y - sin * 0.35);
    ctx.lineTo(x - cos * 0.75 + sin * 0.72, y - sin * 0.75 - cos * 0.72);
    ctx.fill();
    if (ship.shield > 0) {
      ctx.strokeStyle = rgba(shieldBlue, 0.35 + ship.shield / 160);
      ctx.lineWidth = Math.max(1, size * 0.16);
      ctx.beginPath();
      ctx.arc(x, y, size * 1.42, 0, 7);
      ctx.stroke();
    }
    if (size > 9) this.#plate(ctx, ship, left, x, y, size);
  }

  /** Close up: the ship's name, what it has destroyed, and its hull as a bar. */
  #plate(ctx, ship, left, x, y, size) {
    const w = size * 2.2, top = y + size * 1.7;
    ctx.fillStyle = "rgba(255,255,255,.16)";
    ctx.fillRect(x - w / 2, top, w, 2.5);
    ctx.fillStyle = left > 0.5 ? "#7fe0a7" : left > 0.25 ? "#ffc46b" : "#ff7a5c";
    ctx.fillRect(x - w / 2, top, w * left, 2.5);
    if (size < 13) return;
    ctx.fillStyle = "rgba(214,226,244,.72)";
    ctx.font = "10px system-ui, sans-serif";
    ctx.textAlign = "center";
    ctx.fillText(text.decode(ship.owner) + (ship.score ? ` ×${ship.score}` : ""), x, top + 14);
  }
}
