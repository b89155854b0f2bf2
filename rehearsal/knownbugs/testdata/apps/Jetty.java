import java.nio.ByteBuffer;
import org.eclipse.jetty.server.Handler;
import org.eclipse.jetty.server.HttpConnectionFactory;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Response;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.GracefulHandler;
import org.eclipse.jetty.util.Callback;

/** Jetty with its own shutdown hook. With FINISH it waits for the requests in flight, and keeps no connection. */
public class Jetty {
    public static void main(String[] args) throws Exception {
        var server = new Server();
        var connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        connector.setPort(Integer.parseInt(System.getenv("PORT")));
        server.addConnector(connector);
        server.setStopAtShutdown(true);
        var app = new Handler.Abstract() {
            @Override
            public boolean handle(Request request, Response response, Callback callback) throws Exception {
                if (Request.getPathInContext(request).equals("/slow")) Thread.sleep(1500);
                response.write(true, ByteBuffer.wrap("hello ".repeat(100).getBytes()), callback);
                return true;
            }
        };
        if (System.getenv("FINISH") == null) {
            server.setHandler(app);
        } else {
            server.setHandler(new GracefulHandler(app));
            server.setStopTimeout(20_000);
            connector.getConnectionFactory(HttpConnectionFactory.class).getHttpConfiguration().setPersistentConnectionsEnabled(false);
        }
        server.start();
        server.join();
    }
}
