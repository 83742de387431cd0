// The picture: two canvases, the ground below, which is drawn again only when the view or an owner changes,
// and everything that lives above it.

import { Camera, handle } from "./camera.js";
import { Effects } from "./effects.js";
import { drawLabel } from "./label.js";
import { css, grey, mix, rgb } from "./palette.js";
import { phase } from "./chaos.js";
import { Sprites } from "./sprites.js";
import { Departed, Entered } from "./wire.js";

const pulseTime = 260, beatTime = 500, waveTime = 1300, contestTime = 500, refusalTime = 7000, reliefTime = 1600; // ms
const harm = [255, 107, 94], relief = [111, 224, 160], mending = [255, 196, 107];
const calmly = matchMedia("(prefers-reduced-motion: reduce)");

export class Scene {
  /** takeOver(tile) is called for a click on a tile, follow(tile, ship) for one on a ship; hovered(tile or null, x, y,
   *  ship or null) when the pointer moves. */
  constructor(groundCanvas, liveCanvas, world, crossings, { takeOver, follow, hovered }) {
    this.world = world;
    this.ships = crossings; // of which each is drawn once
    this.layers = [groundCanvas, liveCanvas];
    this.ctx = liveCanvas.getContext("2d");
    this.groundCtx = groundCanvas.getContext("2d", { alpha: true });
    this.effects = new Effects();
    this.flights = new Map(); // by name, the sprites of ships that have left a tile: its id, and where they were
    this.crossings = 0; // of ships from tile to tile
    this.tiles = new Map(world.tiles.map((t) => [t.tile, this.#tile(t)]));
    this.mesh = document.createElement("canvas"); // the cells, drawn once a view
    this.camera = new Camera(box(world.tiles), () => { this.meshStale = true; this.wake(); });
    this.hover = null;
    handle(liveCanvas, this.camera, {
      hover: (x, y) => this.#point(x, y, hovered),
      leave: () => this.#point(-1, -1, hovered),
      click: (x, y, touch) => {
        const tile = this.#tileAt(x, y);
        // A finger cannot hover: its first tap shows what a click would do, the second does it.
        const ready = !touch || (tile && this.hover === tile.id);
        this.#point(x, y, hovered);
        if (!tile || !ready) return;
        hovered(null, x, y); // what was announced happens: it must not be covered
        const ship = this.#shipAt(tile, x, y);
        if (ship) follow(tile.id, ship);
        else takeOver(tile.id);
      },
    });
    new ResizeObserver(() => this.#resize()).observe(liveCanvas);
    this.#resize();
  }

  #tile(t) {
    const outline = new Path2D(), cells = new Path2D();
    polygon(outline, t.outline, 0, 0);
    for (let i = 0; i < t.cells.length; i += 2) polygon(cells, t.corners, t.cells[i], t.cells[i + 1]);
    const xs = t.outline.filter((_, i) => i % 2 === 0), ys = t.outline.filter((_, i) => i % 2 === 1);
    return {
      id: t.tile, ground: t, outline, cells, x: t.cells[0], y: t.cells[1], top: Math.min(...ys),
      radius: (Math.max(...xs) - Math.min(...xs)) / 2,
      sprites: new Sprites(t.cells, this.world.pitch, this.world.tickMs, this.effects),
      owner: "", epoch: 0, seq: 0, tick: 0, pulse: -Infinity, wave: null, contest: null, refusal: null, known: false,
      fault: null, relieved: -Infinity,
    };
  }

  // What the page tells the scene.

  reset(id, ships) {
    const t = this.tiles.get(id);
    t.sprites.reset(ships);
    t.known = true;
    this.wake(true);
  }

  batch(id, events, fleet) {
    const t = this.tiles.get(id), now = performance.now();
    t.pulse = now;
    t.sprites.pace(fleet.pace);
    for (const e of events) if (e.kind === Departed) this.#leave(t, e, now);
    if (document.hidden) t.sprites.reset(fleet.ships);
    else t.sprites.react(events, now, calmly.matches);
    for (const e of events) if (e.kind === Entered) this.#enter(t, e, now);
    this.wake();
  }

  /** A ship leaves for another tile. The new tile's word may have been here first. */
  #leave(t, e, now) {
    const at = t.sprites.place(e.ship), seen = this.ships.get(e.ship.name), to = this.tiles.get(e.to);
    if (seen && seen.tile !== t.id) return this.#crossed(seen, at, now);
    if (to) this.flights.set(e.ship.name, { id: t.id, at, sprite: t.sprites.leave(e.ship, [to.x, to.y], now), by: t.sprites });
  }

  /** A ship has entered a tile, from the place where it left another. */
  #enter(t, e, now) {
    const from = this.flights.get(e.ship.name);
    if (!from || this.ships.get(e.ship.name)?.tile !== t.id) return;
    this.flights.delete(e.ship.name);
    if (from.id === t.id) return; // it has come back
    if (!document.hidden && !calmly.matches) t.sprites.sail(e.ship, from.at, now);
    this.#crossed({ tile: t.id, value: e.ship }, from.at, now);
  }

  #crossed({ tile, value }, from, now) {
    this.crossings++;
    if (!document.hidden) this.effects.crossing(now, from, this.tiles.get(tile).sprites.place(value));
  }

  /** Draws the ships between two tiles. */
  #drawFlights(ctx, now) {
    for (const [name, { sprite, by }] of this.flights) {
      if (this.ships.get(name)?.to) by.draw(ctx, this.camera, now, () => true, [sprite]);
      else this.flights.delete(name);
    }
    return this.flights.size > 0;
  }

  at(id, epoch, seq, tick) {
    Object.assign(this.tiles.get(id), { epoch, seq });
    if (tick) this.tiles.get(id).tick = tick;
    this.wake();
  }

  /** Recolours a tile: a wave from its middle, over the dimmed colour of the old owner. */
  own(id, owner) {
    const t = this.tiles.get(id);
    if (t.owner === owner) return;
    // A takeover can be over before an eye has seen it begin: the wave gives it time.
    if (t.owner && !calmly.matches) t.wave = { start: Math.max(performance.now(), (t.contest?.start ?? 0) + contestTime), from: t.owner };
    t.owner = owner;
    t.contest = null;
    this.wake(true);
  }

  /** Marks a tile as being taken over; null ends it. */
  contest(id, on) {
    this.tiles.get(id).contest = on ? { start: performance.now() } : null;
    this.wake(true);
  }

  /** Marks a tile that a fault has hit, as long as it suffers; null: it does not. now is the servers' time. */
  suffer(id, fault, now) {
    const t = this.tiles.get(id);
    if (fault) {
      t.fault = { kind: fault.kind, mending: phase(fault) !== "hit", for: Math.max(0, now - fault.began) };
      this.wake();
    } else if (t.fault) {
      t.fault = null;
      t.relieved = performance.now();
      this.wake();
    }
  }

  refused(id, owner, epoch) {
    this.tiles.get(id).refusal = { owner, epoch, until: performance.now() + refusalTime };
    this.wake();
  }

  /** Shows the areas of a tile that a player watches, and its ship; only: the rest is dark. No tile: no player is followed. */
  look(id, areas, only, ship) {
    const ground = this.tiles.get(id)?.ground, path = new Path2D(), outline = [], before = this.sight;
    for (const a of ground ? areas : []) {
      outline.push(...ground.cells.slice(2 * ground.spans[a - 1], 2 * ground.spans[a]));
    }
    for (let i = 0; i < outline.length; i += 2) polygon(path, ground.corners, outline[i], outline[i + 1]);
    this.sight = outline.length ? { id, path, only, ship } : null;
    if (only && this.sight) this.camera.show(box([{ outline }]));
    else if (before?.only) this.camera.fit();
    this.wake();
  }

  // Drawing.

  /** Sees to it that the next picture is drawn; repaint says that the ground has changed too. */
  wake(repaint = false) {
    this.groundStale ||= repaint;
    if (this.frame) return;
    this.frame = requestAnimationFrame((now) => this.#frame(now));
  }

  #frame(now) {
    this.frame = 0;
    if (now - this.drawn < this.#rest(now)) return this.wake();
    this.drawn = now;
    if (this.#draw(now)) this.wake();
  }

  // Where drawing is slow (no graphics card, or a busy machine) fewer pictures leave time for the rest of
  // the page. Judged by the time between pictures, since most of the work happens after drawing.
  #rest(now) {
    const gap = now - (this.tried ?? now);
    this.tried = now;
    if (gap < 250) this.gap = (this.gap ?? 16) * 0.9 + gap * 0.1;
    return this.gap > 24 ? 60 : 0;
  }

  #resize() {
    const live = this.layers[1], ratio = Math.min(devicePixelRatio || 1, 2);
    const { clientWidth: w, clientHeight: h } = live;
    if (!w || !h) return;
    for (const c of this.layers) Object.assign(c, { width: Math.round(w * ratio), height: Math.round(h * ratio) });
    this.ratio = ratio;
    this.camera.resize(w, h);
  }

  /** Sets a context to draw in the plane's coordinates. */
  #intoPlane(ctx) {
    const { scale, x, y, width, height } = this.camera, r = this.ratio;
    ctx.setTransform(scale * r, 0, 0, scale * r, (width / 2 - x * scale) * r, (height / 2 - y * scale) * r);
  }

  #drawMesh() {
    const { mesh, camera: { scale } } = this, ctx = mesh.getContext("2d"), px = this.world.pitch * scale;
    Object.assign(mesh, { width: this.layers[0].width, height: this.layers[0].height }); // clears it
    this.#intoPlane(ctx);
    ctx.lineWidth = Math.min(1, 0.35 + px / 40) / scale;
    ctx.strokeStyle = `rgba(148,176,216,${Math.min(0.17, 0.05 + px / 130)})`;
    for (const t of this.tiles.values()) ctx.stroke(t.cells);
    this.meshStale = false;
  }

  /** Draws cells, colours and outlines; true while a colour is on its way. */
  #drawGround(now) {
    if (this.meshStale) this.#drawMesh();
    const ctx = this.groundCtx;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    ctx.drawImage(this.mesh, 0, 0);
    this.#intoPlane(ctx);
    const tiles = [...this.tiles.values()].sort((a, b) => this.#rank(a) - this.#rank(b));
    let busy = false;
    for (const t of tiles) busy = this.#drawTile(ctx, t, now) || busy;
    return busy;
  }

  /** Draws everything; true if the next picture will differ without anybody saying so. */
  #draw(now) {
    if (!this.ratio) return false;
    if (this.groundStale || this.meshStale) this.groundStale = this.#drawGround(now);
    let busy = this.groundStale || this.effects.busy;
    const { ctx } = this, tiles = [...this.tiles.values()];
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    this.#intoPlane(ctx);
    if (this.sight) this.#drawSight(ctx, now);
    for (const t of tiles) busy = this.#drawPulse(ctx, t, now) || busy;
    for (const t of tiles) busy = this.#drawHarm(ctx, t, now) || busy;
    ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    for (const t of tiles) {
      t.sprites.draw(ctx, this.camera, now, ({ name }) => {
        const seen = this.ships.get(name);
        return seen !== undefined && !seen.to && seen.tile === t.id;
      });
      busy = t.sprites.moving(now) || busy;
    }
    busy = this.#drawFlights(ctx, now) || busy;
    this.effects.draw(ctx, this.camera, now);
    for (const t of tiles) busy = this.#drawLabel(ctx, t, now) || busy;
    return busy;
  }

  #contested(t, now) { return t.contest !== null || (t.wave !== null && now < t.wave.start); }

  /** Whose tile it is to the eye: the old owner's until the wave begins. */
  #holder(t, now) { return t.wave && now < t.wave.start ? t.wave.from : t.owner; }

  // Outlines meet: the one that has something to say is drawn last.
  #rank(t) { return (this.hover === t.id ? 4 : 0) + (t.contest ? 2 : 0) + (t.wave ? 1 : 0); }

  #drawTile(ctx, t, now) {
    const { scale } = this.camera, hover = this.hover === t.id;
    const contested = this.#contested(t, now), colour = t.known ? rgb(this.#holder(t, now)) : grey;
    const wave = t.wave ? (now - t.wave.start) / waveTime : 1;
    if (wave < 1 && !contested) {
      this.#drawWave(ctx, t, wave, colour);
    } else {
      if (wave >= 1) t.wave = null;
      ctx.fillStyle = contested ? css(mix(colour, grey, 0.75), 0.06) : css(colour, 0.115 + (hover ? 0.06 : 0));
      ctx.fill(t.outline);
    }
    ctx.lineJoin = "round";
    if (hover) {
      ctx.lineWidth = 6 / scale;
      ctx.strokeStyle = css(colour, 0.22);
      ctx.stroke(t.outline);
    }
    ctx.lineWidth = (hover ? 2.2 : 1.4) / scale;
    ctx.strokeStyle = css(colour, 0.75);
    if (contested) {
      ctx.setLineDash([8 / scale, 7 / scale]);
      ctx.lineDashOffset = calmly.matches ? 0 : -now / 28 / scale;
      ctx.strokeStyle = css([255, 255, 255], 0.8);
    }
    ctx.stroke(t.outline);
    ctx.setLineDash([]);
    return t.wave !== null || (t.contest !== null && !calmly.matches);
  }

  /** Surrounds the areas that a player watches. The cells are cut out of a darkened picture, and of a line around
   *  each, so that what is left is the line around them all. It is the first thing on its canvas. */
  #drawSight(ctx, now) {
    const { id, path, only, ship } = this.sight, { scale } = this.camera, [l, t] = this.camera.toWorld(0, 0);
    if (only) {
      ctx.fillStyle = "rgba(4,7,12,.78)";
      ctx.fillRect(l, t, this.camera.width / scale, this.camera.height / scale);
    }
    ctx.lineJoin = "round";
    ctx.lineWidth = 7 / scale;
    ctx.strokeStyle = "rgba(255,232,150,.95)";
    ctx.stroke(path);
    ctx.globalCompositeOperation = "destination-out";
    ctx.lineWidth = 3 / scale;
    ctx.strokeStyle = "#000";
    ctx.fill(path);
    ctx.stroke(path);
    ctx.globalCompositeOperation = "source-over";
    ctx.fillStyle = `rgba(255,232,150,${only ? 0 : 0.07})`;
    ctx.fill(path);
    const { sprites } = this.tiles.get(id), sprite = sprites.all.get(ship);
    if (!sprite) return;
    ctx.beginPath();
    ctx.arc(...sprites.at(sprite, now), Math.max(11 / scale, this.world.pitch), 0, 7);
    ctx.lineWidth = 1.6 / scale;
    ctx.strokeStyle = "rgba(255,232,150,.95)";
    ctx.stroke();
  }

  /** A batch has come: the outline lights up for a moment. */
  #drawPulse(ctx, t, now) {
    const left = 1 - (now - t.pulse) / pulseTime;
    if (left <= 0 || calmly.matches) return false;
    ctx.lineWidth = (1 + 2 * left) / this.camera.scale;
    ctx.strokeStyle = css(rgb(t.owner), 0.75 * left);
    ctx.stroke(t.outline);
    return true;
  }

  /** A tile that suffers is hatched, and its outline throbs; when it is well again, it lights up once. */
  #drawHarm(ctx, t, now) {
    const { scale } = this.camera;
    if (t.fault) {
      const colour = t.fault.mending ? mending : harm, beat = calmly.matches ? 0.5 : 0.5 + 0.5 * Math.sin(now / 190);
      ctx.save();
      ctx.clip(t.outline);
      ctx.fillStyle = css(colour, 0.05 + 0.04 * beat);
      ctx.fill(t.outline);
      this.#hatch(ctx, t, colour, now);
      ctx.restore();
      ctx.lineJoin = "round";
      ctx.lineWidth = (2 + 1.6 * beat) / scale;
      ctx.strokeStyle = css(colour, 0.55 + 0.4 * beat);
      ctx.stroke(t.outline);
      return !calmly.matches;
    }
    const left = 1 - (now - t.relieved) / reliefTime;
    if (left <= 0) return false;
    ctx.fillStyle = css(relief, 0.2 * left ** 2);
    ctx.fill(t.outline);
    ctx.lineWidth = (1.5 + 3 * left) / scale;
    ctx.strokeStyle = css(relief, 0.9 * left);
    ctx.stroke(t.outline);
    return true;
  }

  #hatch(ctx, t, colour, now) {
    const step = 26 / this.camera.scale, r = t.radius * 1.3, drift = calmly.matches ? 0 : ((now / 45) / this.camera.scale) % step;
    ctx.lineWidth = 5 / this.camera.scale;
    ctx.strokeStyle = css(colour, 0.1);
    ctx.beginPath();
    for (let d = -2 * r + drift; d < 2 * r; d += step) {
      ctx.moveTo(t.x + d - r, t.y + r);
      ctx.lineTo(t.x + d + r, t.y - r);
    }
    ctx.stroke();
  }

  /** The new owner's colour runs outwards over the old one's, which has gone grey. */
  #drawWave(ctx, t, progress, colour) {
    const { scale } = this.camera;
    const out = 1 - (1 - progress) ** 2.4, r = Math.max(1, t.radius * 1.2 * out);
    ctx.save();
    ctx.clip(t.outline);
    ctx.fillStyle = css(mix(rgb(t.wave.from), grey, 0.7), 0.07 * (1 - progress));
    ctx.fill(t.outline);
    const g = ctx.createRadialGradient(t.x, t.y, 0, t.x, t.y, r);
    g.addColorStop(0, css(colour, 0.11));
    g.addColorStop(0.75, css(colour, 0.11 + 0.1 * (1 - progress)));
    g.addColorStop(1, css(colour, 0.11 + 0.5 * (1 - progress)));
    ctx.fillStyle = g;
    ctx.beginPath();
    ctx.arc(t.x, t.y, r, 0, 7);
    ctx.fill();
    ctx.lineWidth = 3 / scale;
    ctx.strokeStyle = css(colour, 0.9 * (1 - progress));
    ctx.stroke();
    ctx.restore();
  }

  #drawLabel(ctx, t, now) {
    const wide = t.radius * this.camera.scale; // px from the middle of the tile to its rim
    if (wide < 34 || this.sight?.only && this.sight.id !== t.id) return false;
    if (t.refusal && t.refusal.until < now) t.refusal = null;
    const beat = Math.max(0, 1 - (now - t.pulse) / beatTime);
    drawLabel(ctx, this.#labelAt(t), {
      ...t, owner: this.#holder(t, now), contested: this.#contested(t, now), small: wide < 105, beat: calmly.matches ? 0 : beat,
    });
    return beat > 0;
  }

  /** In the upper half of the tile; at the top of the canvas for a tile that is seen from so near that
   *  its label would be outside. */
  #labelAt(t) {
    const { camera } = this, at = camera.toScreen(t.x, t.top + (t.y - t.top) * 0.42);
    const outside = at[0] < 60 || at[0] > camera.width - 60 || at[1] < 20 || at[1] > camera.height - 20;
    return outside && this.#tileAt(camera.width / 2, camera.height / 2) === t ? [camera.width / 2, 26] : at;
  }

  // Pointing.

  #tileAt(px, py) {
    const [x, y] = this.camera.toWorld(px, py), { ctx } = this;
    ctx.save();
    ctx.setTransform(1, 0, 0, 1, 0, 0); // outlines are in the plane's coordinates
    const found = [...this.tiles.values()].find((t) => ctx.isPointInPath(t.outline, x, y));
    ctx.restore();
    return found ?? null;
  }

  #point(x, y, hovered) {
    const tile = x < 0 ? null : this.#tileAt(x, y);
    this.layers[1].classList.toggle("over", tile !== null);
    if ((tile?.id ?? null) !== this.hover) {
      this.hover = tile?.id ?? null;
      this.wake(true);
    }
    hovered(tile, x, y, tile && this.#shipAt(tile, x, y));
  }

  /** The ship under the pointer, or null. */
  #shipAt(tile, px, py) {
    const within = Math.max(7 / this.camera.scale, this.world.pitch * 0.4);
    return tile.sprites.nearest(...this.camera.toWorld(px, py), within, performance.now());
  }

  /** Marks a tile from outside, such as from the list. */
  highlight(id) {
    this.hover = id;
    this.wake(true);
  }
}

function polygon(path, points, x, y) {
  path.moveTo(points[0] + x, points[1] + y);
  for (let i = 2; i < points.length; i += 2) path.lineTo(points[i] + x, points[i + 1] + y);
  path.closePath();
}

function box(tiles) {
  let [l, t, r, b] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const { outline } of tiles) {
    for (let i = 0; i < outline.length; i += 2) {
      l = Math.min(l, outline[i]); r = Math.max(r, outline[i]);
      t = Math.min(t, outline[i + 1]); b = Math.max(b, outline[i + 1]);
    }
  }
  return [l, t, r, b];
}

