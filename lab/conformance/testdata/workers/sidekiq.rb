# A worker for Sidekiq, and its producer: see workers.py.
require "sidekiq"

Sidekiq.configure_server { |c| c.redis = {url: ENV["BROKER"]} }
Sidekiq.configure_client { |c| c.redis = {url: ENV["BROKER"]} }

class Handle
  include Sidekiq::Worker

  def note(what, n)
    File.open(ENV["EVENTS"], "a") { |f| f.write("#{what} #{n} #{ENV["WORKER"]}\n") }
  end

  def perform(n)
    note("begin", n)
    sleep(0.3 + n.to_i * 7919 % 28 / 10.0)
    note("end", n)
  end
end

if ARGV == ["produce"]
  $stdout.sync = true
  $stdin.each_line do |line|
    Handle.perform_async(line.strip)
    puts line
  end
end
