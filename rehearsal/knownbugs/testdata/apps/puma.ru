# A Rack app for Puma. With FINISH no connection is kept: Puma 5 closes kept ones at SIGTERM, whatever they just received.
headers = { 'content-type' => 'text/plain' }
headers['connection'] = 'close' if ENV['FINISH']
run lambda { |env|
  sleep 1.5 if env['PATH_INFO'] == '/slow'
  [200, headers.dup, ['hello ' * 100]]
}
