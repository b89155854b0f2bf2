// The clients of Node: its own http, and undici, which is its fetch. See client.py.
const http = require('http'), https = require('https'), readline = require('readline'), zlib = require('zlib')
const undici = require('undici')

const limit = 5000
const table = Array.from({ length: 256 }, (_, n) => { for (let i = 0; i < 8; i++) n = n & 1 ? 0xedb88320 ^ (n >>> 1) : n >>> 1; return n >>> 0 })
const crc = (data) => { let c = ~0; for (const b of data) c = table[(c ^ b) & 255] ^ (c >>> 8); return (~c >>> 0).toString(16).padStart(8, '0') }
const answered = (status, body) => `${status}:${body.length}:${crc(body)}`
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

function failed(error, status) {
  let text = ''
  for (let e = error; e; e = e.cause) text += `${e.name} ${e.code} ${e.message} `
  if (/timeout|UND_ERR_.*TIMEOUT|aborted due to/i.test(text)) return 'error:timeout'
  if (status) return 'truncated:' + status
  if (/ECONNREFUSED/.test(text)) return 'error:connect'
  if (/HPE_|UND_ERR_INVALID|Parse Error/.test(text)) return 'error:protocol'
  if (/hang up|other side closed/.test(text)) return 'error:eof'
  if (/ECONNRESET|EPIPE/.test(text)) return 'error:reset'
  return 'error:protocol'
}

function* words(text) {
  for (const word of text) {
    if (word[0] === '~') { yield { pause: +word.slice(1) }; continue }
    const [request, times] = word.split('*')
    const [, method, path, size, chunked] = /^(\w+)@([^:]*)(?::(\d+)(c?))?$/.exec(request)
    for (let i = 0; i < +(times || 1); i++) yield { method, path, body: size ? Buffer.alloc(+size, 'x') : undefined, chunked: !!chunked }
  }
}

async function* parts(body) { for (let at = 0; at < body.length; at += 20000) yield body.subarray(at, at + 20000) }

function once(agent, url, w) {
  return new Promise((resolve) => {
    let status
    const options = { agent, method: w.method, rejectUnauthorized: false, headers: w.body && !w.chunked ? { 'Content-Length': w.body.length } : {} }
    const request = (url.startsWith('https') ? https : http).request(url + w.path, options, (response) => {
      status = response.statusCode
      const got = []
      response.on('data', (d) => got.push(d))
      response.on('end', () => resolve(response.complete ? answered(status, Buffer.concat(got)) : 'truncated:' + status))
      response.on('error', (e) => resolve(failed(e, status)))
    })
    request.on('error', (e) => resolve(failed(e, status)))
    request.setTimeout(limit, () => request.destroy(new Error('timeout')))
    if (!w.body) request.end()
    else if (!w.chunked) request.end(w.body)
    else { for (let at = 0; at < w.body.length; at += 20000) request.write(w.body.subarray(at, at + 20000)); request.end() }
  })
}

const kinds = {
  async node(url, text) {
    const agent = new (url.startsWith('https') ? https : http).Agent({ keepAlive: true, maxSockets: 1 }), results = []
    for (const w of words(text)) w.pause ? await pause(w.pause) : results.push(await once(agent, url, w))
    agent.destroy()
    return results
  },
  async undici(url, text) {
    const dispatcher = new undici.Agent({ connections: 1, connect: { rejectUnauthorized: false } }), results = []
    for (const w of words(text)) {
      if (w.pause) { await pause(w.pause); continue }
      let status
      try {
        const body = w.chunked ? parts(w.body) : w.body
        const response = await undici.fetch(url + w.path, { dispatcher, method: w.method, body, redirect: 'manual', duplex: body ? 'half' : undefined, signal: AbortSignal.timeout(limit) })
        status = response.status
        results.push(answered(status, Buffer.from(await response.arrayBuffer())))
      } catch (e) { results.push(failed(e, status)) }
    }
    await dispatcher.destroy()
    return results
  },
  async node2(url, text) {
    const http2 = require('http2'), results = []
    const session = http2.connect(url, { rejectUnauthorized: false })
    session.on('error', () => {})
    for (const w of words(text)) {
      if (w.pause) { await pause(w.pause); continue }
      results.push(await new Promise((resolve) => {
        let status
        const got = [], stream = session.request({ ':method': w.method, ':path': w.path })
        stream.setTimeout(limit, () => resolve('error:timeout'))
        stream.on('response', (h) => { status = h[':status'] })
        stream.on('data', (d) => got.push(d))
        stream.on('error', (e) => resolve(status ? 'truncated:' + status : 'error:' + e.code + '_' + e.message.replace(/ /g, '_')))
        stream.on('end', () => { if (stream.rstCode === 0 && status) resolve(answered(status, Buffer.concat(got))) })
        stream.on('close', () => resolve(status ? 'truncated:' + status : 'error:eof'))
        stream.end(w.body)
      }))
    }
    session.destroy()
    return results
  },
}

readline.createInterface({ input: process.stdin }).on('line', async (line) => {
  const [name, kind, url, ...text] = line.split(' ')
  let result
  try { result = (await kinds[kind](url, text)).join(' ') } catch (e) { result = 'broken:' + String(e).replace(/ /g, '_') }
  console.log(name + ' ' + result)
}).on('close', () => process.exit(0))
