// Node's own server with the paths of app.py: node server.js PORT
const http = require('http'), zlib = require('zlib')

const big = Buffer.alloc(1 << 20, 'b')
const server = http.createServer((request, response) => {
  const whole = (status, body, headers) => { response.writeHead(status, { ...headers, ...(status !== 204 && status !== 304 ? { 'Content-Length': body.length } : {}) }); response.end(body) }
  switch (request.url) {
    case '/ok': return whole(200, 'ok\n')
    case '/close': return whole(200, 'ok\n', { Connection: 'close' })
    case '/big': return whole(200, big)
    case '/204': return whole(204, '')
    case '/304': return whole(304, '', { ETag: '"1"' })
    case '/early': return whole(413, 'too large\n')
    case '/echo': {
      let n = 0
      request.on('data', (d) => { n += d.length })
      return request.on('end', () => whole(200, n + ' bytes\n'))
    }
    case '/stream': {
      let n = 0
      const next = () => { if (n === 5) return response.end(); response.write(`part ${n++}\n`); setTimeout(next, 20) }
      return next()
    }
    case '/cut':
      response.writeHead(200, { 'Content-Length': 5000 })
      response.write(Buffer.alloc(1000, 'c'))
      return setTimeout(() => request.socket.destroy(), 50)
    case '/gone': return request.socket.destroy()
    case '/hints': response.writeEarlyHints({ link: '</style.css>; rel=preload' }); return whole(200, 'ok\n')
    // Closed after the response without a word about it in its head.
    case '/unannounced': whole(200, 'ok\n'); return response.on('finish', () => request.socket.end())
    default: whole(404, 'nothing here\n')
  }
})
server.keepAliveTimeout = 2000
server.keepAliveTimeoutBuffer = 0
server.maxRequestsPerSocket = 3
server.listen(+process.argv[2], '0.0.0.0')
