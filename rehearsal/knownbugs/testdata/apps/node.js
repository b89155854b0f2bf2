// An HTTP server of Node's standard library. ON_TERM is its behaviour at SIGTERM: nothing, close (finishes the requests in
// flight), hurry (closes, but exits at once) or refuse (503 for new requests, for two seconds). EXPRESS and FASTIFY choose a framework.
const crypto = require('crypto');
let refuses = false;
const streams = new Set();
function handle(q, s) {
  if (refuses) { s.statusCode = 503; return s.end('shutting down'); }
  if (q.url === '/events') {
    s.writeHead(200, { 'Content-Type': 'text/event-stream' });
    streams.add(s);
    const every = setInterval(() => s.write('data: tick\n\n'), 200);
    return s.on('close', () => { clearInterval(every); streams.delete(s); });
  }
  setTimeout(() => s.end('hello '.repeat(100)), q.url === '/slow' ? 1500 : 5);
}
const port = process.env.PORT;
let server;
if (process.env.FRAMEWORK === 'express') {
  server = require('express')().use(handle).listen(port);
} else if (process.env.FRAMEWORK === 'fastify') {
  const f = require('fastify')();
  f.get('/slow', async () => new Promise((r) => setTimeout(() => r('hello '.repeat(100)), 1500)));
  f.get('/fast', async () => 'hello');
  f.listen({ port: Number(port), host: '127.0.0.1' });
  server = f.server;
} else {
  server = require('http').createServer(handle).listen(port);
}
const sockets = new Set();
server.on('upgrade', (q, socket) => {
  const key = crypto.createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + key + '\r\n\r\n');
  sockets.add(socket);
  socket.on('error', () => {}).on('close', () => sockets.delete(socket)).on('data', () => {});
});
let closing = false;
server.prependListener('request', (q, s) => { if (closing) s.setHeader('Connection', 'close'); });
const behaviours = {
  close() {
    closing = true;
    for (const s of streams) s.end();
    for (const s of sockets) s.end(Buffer.from([0x88, 2, 0x03, 0xe9])); // close frame, 1001
    server.close();
  },
  hurry() { server.close(); setTimeout(() => process.exit(0), 100); },
  refuse() { refuses = true; setTimeout(() => server.close(), 2000); },
};
if (behaviours[process.env.ON_TERM]) process.on('SIGTERM', behaviours[process.env.ON_TERM]);
