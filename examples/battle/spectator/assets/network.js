// A worker that does the page's listening, so that the time at which something arrived is the time at which
// it arrived, and not the time at which the page had finished drawing.
//
//   to the worker                 from the worker
//   {connect: url, protocol}      {opened}, {message: text, at}, {closed: reason}
//   {send: text}, {close: true}
//   {status: url}                 {status: report, sent, received} or {status: null, error}
//
// Times are milliseconds since 1970 by this machine's clock.

"use strict";

const statusTimeout = 10_000; // ms until an answer that has not come, or not ended, is given up
let socket = null;
const now = () => performance.timeOrigin + performance.now();

function leave() {
  if (!socket) return;
  socket.onopen = socket.onmessage = socket.onclose = null;
  socket.close();
  socket = null;
}

function connect(url, protocol) {
  leave(); // the page leaves this relay
  const s = new WebSocket(url, protocol);
  socket = s;
  s.onopen = () => postMessage({ opened: true });
  s.onmessage = (m) => { if (typeof m.data === "string") postMessage({ message: m.data, at: now() }); };
  s.onclose = (c) => postMessage({ closed: c.reason || "closed" });
}

async function status(url) {
  const sent = now();
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(statusTimeout) });
    const received = now(); // the headers: the body of a long history takes longer
    if (!response.ok) throw new Error(await response.text());
    postMessage({ status: await response.json(), sent, received });
  } catch (err) {
    postMessage({ status: null, error: String(err.message ?? err) });
  }
}

onmessage = ({ data }) => {
  if (data.connect) connect(data.connect, data.protocol);
  else if (data.close) leave();
  else if (data.send && socket?.readyState === WebSocket.OPEN) socket.send(data.send);
  else if (data.status) status(data.status);
};
