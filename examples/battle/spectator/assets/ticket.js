// The visitor's own way through the lobby: a button that signs in as a guest and asks for a match, the ticket's state as
// it changes, and the seat, which is taken at the gateway and left again.

import { endSilent } from "../relay/silence.js";
import { shortTile } from "./palette.js";

const protocol = "tilefence.intent.v1.json"; // of the gateway
const ticketProtocol = "tilefence.ticket.v1"; // of the lobby
const withToken = (token) => `tilefence.token.${token}`; // a subprotocol that carries it
const again = 500; // ms until a ticket is followed again after its connection was lost
const silence = 25_000; // ms after which a connection on which nothing has come is given up
const askEvery = 20_000; // ms after which a player who has a seat shows, and sees, that its gateway is there
const $ = (id) => document.getElementById(id);

const name = () => Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("");

export class Ticket {
  constructor() {
    $("ticket-button").addEventListener("click", () => this.act());
    this.#show("", "Find a match", () => this.#find());
  }

  #show(text, button, act) {
    this.act = act;
    $("ticket-button").textContent = button;
    $("ticket-state").textContent = text;
  }

  #ask(method, path = "", body) {
    const headers = { Authorization: `Bearer ${this.guest.token}` };
    return fetch(`/lobby/tickets/${this.id}${path}`, { method, headers, body: body && JSON.stringify(body) });
  }

  /** Signs in, or renews the token of the guest that the visitor is. */
  async #signIn() {
    const headers = this.guest ? { Authorization: `Bearer ${this.guest.token}` } : {};
    const response = await fetch("/lobby/guests/you", { method: "POST", headers });
    this.guest = response.ok ? await response.json() : null;
    return response.ok;
  }

  async #find() {
    this.id = name();
    const rating = 1300 + Math.floor(Math.random() * 400);
    const cancel = () => this.#ask("DELETE");
    this.#show(`rating ${rating}: asking`, "Cancel", cancel);
    const asked = async () => (await this.#signIn()) && (await this.#ask("PUT", "", { rating })).ok;
    if (!(await asked().catch(() => false))) return this.#show("the lobby does not answer", "Find a match", () => this.#find());
    this.#follow(rating, cancel);
  }

  #follow(rating, cancel) {
    const id = this.id, url = new URL(`/lobby/tickets/${id}`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const s = new WebSocket(url, [ticketProtocol, withToken(this.guest.token)]);
    let over = false;
    s.onmessage = ({ data }) => {
      const t = JSON.parse(data), waited = `${(t.waited_ms / 1000).toFixed(1)} s`;
      over = ["cancelled", "timed out"].includes(t.state);
      if (over) this.#show(`${t.state} after ${waited}`, "Find a match", () => this.#find());
      else if (t.state === "seated") this.#sit(t, waited, s);
      else this.#show(`rating ${rating}, ${t.state}: ${t.why ?? ""}`, "Cancel", cancel);
    };
    endSilent(s, silence, { always: true }); // a ticket that waits is followed anew now and then
    s.onclose = () => { if (!over && !this.seat && this.id === id) setTimeout(() => this.#follow(rating, cancel), again); };
  }

  /** Takes the seat, by connecting to the gateway that the ticket names. */
  #sit(t, waited, follower) {
    if (this.seat) return;
    const text = `seat ${t.seats.map((n) => n + 1).join(", ")} on tile ${shortTile(t.tile)}, after ${waited}`;
    this.seat = new WebSocket(t.gateway, [protocol, withToken(t.token)]);
    let sat = false, asks;
    const out = endSilent(this.seat, silence);
    this.seat.onopen = () => {
      sat = true;
      asks = setInterval(() => out.send(JSON.stringify({ id: "here", kind: "ask", action: "here" })), askEvery);
      follower.close();
      this.#show(text, "Leave", () => this.seat.close());
    };
    this.seat.onclose = () => {
      clearInterval(asks);
      this.seat = null;
      if (!sat) return; // too late: the ticket waits again
      this.#ask("POST", "/leave").catch(() => {});
      this.#show(`left ${text}`, "Find a match", () => this.#find());
    };
  }
}
