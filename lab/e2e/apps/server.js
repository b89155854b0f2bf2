// GET /delay/SECONDS answers after that time, everything else at once. SIGTERM ends it at once, or with the argument
// "close" after the requests in flight.
const server = require('http').createServer((request, response) => {
  const delay = request.url.match(/^\/delay\/([\d.]+)$/);
  setTimeout(() => response.end('{}\n'), delay ? delay[1] * 1000 : 0);
});
server.keepAliveTimeout = 60000;
process.on('SIGTERM', () => process.argv[2] === 'close' ? server.close() : process.exit(0));
server.listen(8080, '0.0.0.0');
