import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/** GET /delay/SECONDS answers after that time, everything else at once. SIGTERM ends the virtual machine at once. */
class Server {
    public static void main(String[] args) throws Exception {
        var server = HttpServer.create(new InetSocketAddress(8080), 128);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            var path = exchange.getRequestURI().getPath();
            if (path.startsWith("/delay/")) {
                try {
                    Thread.sleep((long) (1000 * Double.parseDouble(path.substring(7))));
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            var body = "{}\n".getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
