// A client of Tilefence gateways: a player's intents, and what became of them. docs/wire.md has the rules.
//
//   import { Gateway } from "./gateway.js";
//
//   const gateway = new Gateway("wss://play.example/intent", { crossed: ({ to }) => crossings.crossed(to) });
//   gateway.connect();
//   const { outcome, why } = await gateway.move("85283083fffffff", body);
//   const { outcome } = await gateway.act("85283083fffffff", { action: crypto.randomUUID(), asset: "mana", cost: 3, body });
//
// A movement is sent once: if the connection is lost before its answer, its outcome is unknown. An action is sent again,
// under its ID, after a lost connection and after an error that is retryable, until its outcome is known: it happens once.
// While the gateway or the tile is overloaded, for as long as it says and a random part of that, movements are not sent:
// they are answered with the error "overloaded" at once, and those with a move ID wait.

import { endSilent } from "./silence.js";

/** The gateway's WebSocket subprotocol. */
export const subprotocol = "tilefence.intent.v1.json";

const tokenProtocol = "tilefence.token."; // begins the offered subprotocol that carries a token
const backoff = { min: 250, max: 15000 }; // ms between attempts to connect, and until an action is sent again
const answerTimeout = 25000; // ms in which an answer comes, or never
const refused = 1008; // the status with which the game turns a player away
const longestTimer = 2 ** 31 - 1; // ms; a longer timer fires at once

const overloaded = (ms) =>
  ({ code: "overloaded", message: "the gateway has asked to wait", retryable: true, retry_after: ms });
const nothing = () => {};
const base64 = (bytes) => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
const unbase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const pause = (n) => { const cap = Math.min(backoff.max, backoff.min * 2 ** n); return cap / 2 + Math.random() * (cap / 2); };

/**
 * Gateway sends intents. It calls, all of them optional:
 *
 *   crossed({to, entity})  the player has left the tile for another one, where later intents belong
 *   told(bytes)            the game says something to the player
 *   link(state, text)      about the connection: "wait", "live", "lost", or "ended": the player is refused
 *   token()                the player's token, or a promise of it, for each connection and before the session expires
 *
 * An answer is {outcome, why, reason, refunded, at, admission, crossed}, or {error: {code, message, retryable,
 * retry_after}}. Of a movement whose connection was lost, and of all that is under way when the player is refused or
 * close is called, it is {unknown: true}.
 */
export class Gateway {
  #waiting = new Map(); // id → {message, repeats, resolve, failures}
  #last = 0;
  #failures = 0;
  #held = 0; // ms, as of Date.now: until then an overloaded gateway wants no movements

  constructor(url, calls) {
    this.url = url;
    this.calls = { crossed: nothing, told: nothing, link: nothing, ...calls };
    this.ended = false;
  }

  /**
   * Sends a movement. With a move ID, 1 to 64 bytes of the player's, it happens once, and is sent again like an action.
   * within is for how many ms the player needs the answer: a gateway that is late does not begin it after that.
   */
  move(tile, body, { move, within } = {}) {
    const left = this.#held - Date.now();
    if (left > 0 && move === undefined) return Promise.resolve({ error: overloaded(left) });
    return this.#ask({ tile, kind: "move", move, within, body: base64(body) }, move !== undefined);
  }

  /** Sends an action. The ID, 1 to 64 bytes, is a new one for each action. */
  act(tile, { action, asset, cost, body }) { return this.#ask({ tile, kind: "act", action, asset, cost, body: base64(body) }, true); }

  /** Asks for the outcome of an action that this player has sent before. */
  ask(action) { return this.#ask({ kind: "ask", action }, true); }

  /** The tile in which the player is; undefined if it is not known. */
  async where() { return (await this.#ask({ kind: "where" }, true)).where?.tile; }

  /** Connects, and again whenever the connection is lost, until close. */
  async connect() {
    clearTimeout(this.retry);
    this.retry = undefined;
    if (this.ended) return;
    this.calls.link("wait", "connecting");
    let protocols = subprotocol;
    if (this.calls.token) {
      try {
        protocols = [subprotocol, tokenProtocol + await this.calls.token()];
      } catch (err) {
        return this.#closed({ reason: `no token: ${err.message ?? err}` });
      }
      if (this.ended) return;
    }
    const socket = this.socket = new WebSocket(this.url, protocols);
    this.out = endSilent(socket, answerTimeout);
    socket.onopen = () => this.#opened();
    socket.onmessage = ({ data }) => this.#message(JSON.parse(data));
    socket.onclose = (event) => { if (socket === this.socket) this.#closed(event); };
  }

  /** Ends the connection for good. */
  close() { this.#end("closed"); }

  #end(why) {
    if (this.ended) return;
    this.ended = true;
    clearTimeout(this.retry);
    clearTimeout(this.renewal);
    if (this.socket) this.socket.onclose = null;
    this.socket?.close();
    this.calls.link("ended", why);
    for (const id of [...this.#waiting.keys()]) this.#resolve(id, { unknown: true });
  }

  #ask(message, repeats) {
    return new Promise((resolve) => {
      if (this.ended) return resolve({ unknown: true });
      const id = String(++this.#last);
      const request = { message: { id, ...message }, repeats, resolve, failures: 0 };
      this.#waiting.set(id, request);
      this.#send(request);
    });
  }

  /** Sends a request, or keeps it for the next connection. */
  #send(request) {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    clearTimeout(request.again);
    const left = request.message.kind === "move" ? this.#held - Date.now() : 0;
    if (left > 0) {
      request.again = setTimeout(() => { request.again = null; this.#send(request); }, Math.min(left, longestTimer));
      return;
    }
    request.again = undefined;
    request.sent = true;
    this.out.send(JSON.stringify(request.message));
  }

  #opened() {
    this.calls.link("live", "live");
    for (const request of this.#waiting.values()) if (request.again === undefined) this.#send(request);
  }

  #message(m) {
    this.#failures = 0; // not before: a player who is refused is so when the connection is open
    if (m.session) this.#renew(Number(m.session.expires_in ?? 0));
    if (m.message !== undefined) this.calls.told(unbase64(m.message));
    if (m.crossed) this.calls.crossed(m.crossed);
    const request = this.#waiting.get(m.id);
    if (!request) return;
    if (m.error?.code === "overloaded" && request.message.kind === "move") this.#hold(Number(m.error.retry_after ?? 0));
    if (!m.error?.retryable || !request.repeats) return this.#resolve(m.id, m);
    const wait = Math.max(Number(m.error.retry_after ?? 0), 0);
    request.again = setTimeout(() => { request.again = null; this.#send(request); }, Math.min(wait + pause(request.failures++), longestTimer));
  }

  /** Sends no movement for a time, and a random part of it longer: others were told the same. */
  #hold(ms) { if (ms > 0) this.#held = Math.max(this.#held, Date.now() + ms * (1 + Math.random() / 2)); }

  #resolve(id, { id: _, ...answer }) {
    const request = this.#waiting.get(id);
    this.#waiting.delete(id);
    clearTimeout(request.again);
    request.resolve(answer);
  }

  /** Gives the gateway a new token when three quarters of the session have passed. */
  #renew(left) {
    clearTimeout(this.renewal);
    if (!this.calls.token || !(left > 0)) return;
    this.renewal = setTimeout(async () => {
      if (left > 400) this.#renew(left / 4); // until the answer comes
      try {
        const token = await this.calls.token();
        if (this.socket?.readyState === WebSocket.OPEN) this.out.send(JSON.stringify({ id: "token", kind: "refresh", token }));
      } catch { /* the session ends, and the next connection asks again */ }
    }, Math.min(left * 0.75, longestTimer));
  }

  #closed({ code, reason }) {
    if (this.ended) return;
    clearTimeout(this.renewal);
    if (code === refused) return this.#end(reason || "refused");
    for (const [id, request] of [...this.#waiting]) if (request.sent && !request.repeats) this.#resolve(id, { unknown: true });
    this.calls.link("lost", reason ? `${reason}: reconnecting` : "reconnecting");
    this.retry = setTimeout(() => this.connect(), pause(this.#failures++));
  }
}
