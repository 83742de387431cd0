// The camera: which part of the world's plane is on the canvas, and the hands that move it.

const slack = 6; // px a press may wander and still be a click
const zoomLimits = { out: 0.5, in: 14 }; // relative to the view that shows everything

export class Camera {
  /** box is [left, top, right, bottom] of the world; changed is called after every change of view. */
  constructor(box, changed) {
    this.box = box;
    this.changed = changed;
    this.scale = 1; // px a unit of the plane
    this.x = this.y = 0; // the point of the plane in the middle of the canvas
    this.width = this.height = 1;
    this.fitted = true;
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    if (this.fitted) this.fit();
    else this.changed();
  }

  get fitScale() {
    const [l, t, r, b] = this.box;
    const margin = Math.min(36, this.width * 0.04);
    return Math.min((this.width - 2 * margin) / (r - l), (this.height - 2 * margin) / (b - t));
  }

  fit() {
    const [l, t, r, b] = this.box;
    this.fitted = true;
    this.scale = this.fitScale;
    this.x = (l + r) / 2;
    this.y = (t + b) / 2;
    this.changed();
  }

  /** Shows a box of the plane, with some room around it. */
  show([l, t, r, b]) {
    this.fitted = false;
    this.scale = Math.min(this.width / (r - l), this.height / (b - t), this.fitScale * zoomLimits.in) * 0.7;
    this.x = (l + r) / 2;
    this.y = (t + b) / 2;
    this.changed();
  }

  toScreen(x, y) { return [(x - this.x) * this.scale + this.width / 2, (y - this.y) * this.scale + this.height / 2]; }
  toWorld(px, py) { return [(px - this.width / 2) / this.scale + this.x, (py - this.height / 2) / this.scale + this.y]; }

  pan(dx, dy) {
    this.fitted = false;
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.#clamp();
    this.changed();
  }

  /** Zooms by a factor; the point of the plane under px, py stays there. */
  zoom(factor, px = this.width / 2, py = this.height / 2) {
    const [x, y] = this.toWorld(px, py);
    this.fitted = false;
    const fit = this.fitScale;
    this.scale = Math.min(Math.max(this.scale * factor, fit * zoomLimits.out), fit * zoomLimits.in);
    this.x = x - (px - this.width / 2) / this.scale;
    this.y = y - (py - this.height / 2) / this.scale;
    this.#clamp();
    this.changed();
  }

  #clamp() {
    const [l, t, r, b] = this.box;
    this.x = Math.min(Math.max(this.x, l), r);
    this.y = Math.min(Math.max(this.y, t), b);
  }
}

/** Wires mouse, touch and keys of an element to the camera. hover and click get canvas coordinates; touch
 *  says that there is no hovering with this pointer. */
export function handle(element, camera, { hover, leave, click }) {
  const down = new Map(); // pointers that press
  let travelled = 0, span = 0;

  const where = (e) => {
    const r = element.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  };
  const spread = () => {
    const [a, b] = [...down.values()];
    return b ? { d: Math.hypot(a[0] - b[0], a[1] - b[1]), x: (a[0] + b[0]) / 2, y: (a[1] + b[1]) / 2 } : null;
  };

  element.addEventListener("pointerdown", (e) => {
    if (e.button !== 0) return;
    element.setPointerCapture(e.pointerId);
    if (down.size === 0) travelled = 0;
    down.set(e.pointerId, where(e));
    span = spread()?.d ?? 0;
  });
  element.addEventListener("pointermove", (e) => {
    const [x, y] = where(e);
    const last = down.get(e.pointerId);
    if (!last) return hover(x, y);
    down.set(e.pointerId, [x, y]);
    travelled += Math.hypot(x - last[0], y - last[1]);
    if (down.size === 2) {
      const s = spread();
      if (span > 0) camera.zoom(s.d / span, s.x, s.y);
      span = s.d;
    } else if (travelled > slack) {
      leave();
      camera.pan(x - last[0], y - last[1]);
    }
  });
  element.addEventListener("pointerup", (e) => {
    const pressed = down.delete(e.pointerId);
    if (pressed && down.size === 0 && travelled <= slack) click(...where(e), e.pointerType === "touch");
  });
  element.addEventListener("pointercancel", (e) => {
    down.delete(e.pointerId);
    travelled = Infinity;
  });
  element.addEventListener("pointerleave", (e) => { if (e.pointerType !== "touch") leave(); });
  element.addEventListener("wheel", (e) => {
    e.preventDefault();
    camera.zoom(Math.exp(-Math.max(-200, Math.min(200, e.deltaY)) * 0.002), ...where(e));
  }, { passive: false });

  const keys = {
    ArrowLeft: () => camera.pan(60, 0), ArrowRight: () => camera.pan(-60, 0),
    ArrowUp: () => camera.pan(0, 60), ArrowDown: () => camera.pan(0, -60),
    "+": () => camera.zoom(1.25), "=": () => camera.zoom(1.25), "-": () => camera.zoom(0.8), 0: () => camera.fit(),
  };
  element.addEventListener("keydown", (e) => {
    const act = keys[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  });
}
