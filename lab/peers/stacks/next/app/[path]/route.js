// /slow takes 1.5 s. With CLOSE no connection is kept.
export async function GET(request, { params }) {
  if ((await params).path === 'slow') await new Promise((r) => setTimeout(r, 1500));
  return new Response('hello '.repeat(100), { headers: process.env.CLOSE ? { Connection: 'close' } : {} });
}
