// node socketio.js serve PORT NAME: a Socket.IO server for long polls, which sends its name to each client.
// node socketio.js connect URL: a client; it prints {"event", "text"} for each name and each end of its session.
const [role, at, name] = process.argv.slice(2);
if (role === "serve") {
  const server = require("node:http").createServer();
  new (require("socket.io").Server)(server, { transports: ["polling"] }).on("connection", (s) => s.emit("name", name));
  server.listen(Number(at), "127.0.0.1");
} else {
  const say = (event) => (text) => console.log(JSON.stringify({ event, text }));
  const socket = require("socket.io-client").io(at, { transports: ["polling"], reconnectionDelay: 100 });
  socket.on("name", say("name"));
  socket.on("disconnect", say("disconnect"));
}
