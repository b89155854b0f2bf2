// A server as people write them: a slow answer, and nothing that handles SIGTERM.
const answer = (request, response) => setTimeout(() => response.end('hello\n'), 600)
require('http').createServer(answer).listen(Number(process.argv[2]), '127.0.0.1')
