import assert from "node:assert/strict";
import { test } from "node:test";

import { endSilent } from "./silence.js";

/** A socket whose events the test makes. */
class Line extends EventTarget {
  sent = [];
  closes = 0;
  send(data) { this.sent.push(data); }
  close() { this.closes++; } // its answer never comes
  happens(name, message) { this.dispatchEvent(Object.assign(new Event(name), { data: JSON.stringify(message) })); }
}

function begin(t, options) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const line = new Line(), closed = [];
  line.onclose = (e) => closed.push(e);
  return { line, closed, out: endSilent(line, 1000, options), pass: (ms) => t.mock.timers.tick(ms) };
}

test("a handshake that is never answered ends", (t) => {
  const { line, closed, pass } = begin(t);
  pass(999);
  assert.equal(closed.length, 0);
  pass(1);
  assert.deepEqual(closed, [{ code: 1006, reason: "nothing came for 1 s" }]);
  assert.equal(line.closes, 1);
});

test("an intent that is never answered ends the connection, and silence without one does not", (t) => {
  const { line, closed, out, pass } = begin(t);
  line.happens("open");
  pass(3_600_000);
  assert.equal(closed.length, 0);
  out.send("move");
  pass(500);
  line.happens("message", { id: "1", outcome: "applied" });
  pass(3_600_000);
  assert.equal(closed.length, 0);
  out.send("move");
  pass(500);
  out.send("move"); // does not begin the wait anew
  pass(500);
  assert.equal(closed.length, 1);
  assert.deepEqual(line.sent, ["move", "move", "move"]);
});

test("of two intents the second must be answered, too", (t) => {
  const { line, closed, out, pass } = begin(t);
  line.happens("open");
  out.send("one");
  out.send("two");
  line.happens("message", { id: "1", outcome: "applied" });
  line.happens("message", { id: "", session: {} }); // answers nothing
  pass(999);
  assert.equal(closed.length, 0);
  pass(1);
  assert.equal(closed.length, 1);
});

test("a socket on which something must always come", (t) => {
  const { line, closed, pass } = begin(t, { always: true });
  line.happens("open");
  pass(900);
  line.happens("message");
  pass(900);
  assert.equal(closed.length, 0);
  pass(100);
  assert.equal(closed.length, 1);
});

test("a closed socket is left alone", (t) => {
  const { line, closed, pass } = begin(t, { always: true });
  line.happens("open");
  line.happens("close");
  pass(10_000);
  assert.equal(closed.length, 0);
  assert.equal(line.closes, 0);
});
