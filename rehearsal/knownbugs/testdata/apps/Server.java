import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

/**
 * The JDK's HTTP server. With FINISH a shutdown hook finishes the requests in flight, and no connection is kept: stop closes
 * kept ones with requests on them.
 */
public class Server {
    public static void main(String[] args) throws Exception {
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT"))), 100);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            try {
                if (exchange.getRequestURI().getPath().equals("/slow")) Thread.sleep(1500);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            var body = "hello ".repeat(100).getBytes();
            if (System.getenv("FINISH") != null) exchange.getResponseHeaders().set("Connection", "close");
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        if (System.getenv("FINISH") != null) Runtime.getRuntime().addShutdownHook(new Thread(() -> server.stop(10)));
        server.start();
    }
}
