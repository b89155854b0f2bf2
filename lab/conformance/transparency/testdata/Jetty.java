import java.io.*;
import org.eclipse.jetty.http.HttpField;
import org.eclipse.jetty.io.Content;
import org.eclipse.jetty.server.*;
import org.eclipse.jetty.util.Callback;

class Jetty {
    static void serve(int port) throws Exception {
        org.eclipse.jetty.server.Server server = new org.eclipse.jetty.server.Server();
        ServerConnector connector = new ServerConnector(server);
        connector.setPort(port);
        connector.setIdleTimeout(2000);
        server.addConnector(connector);
        server.setHandler(new Handler.Abstract() {
            public boolean handle(Request request, Response response, Callback callback) {
                try {
                    Server.serve(new Exchange(request, response));
                    callback.succeeded();
                } catch (Throwable e) {
                    callback.failed(e);
                }
                return true;
            }
        });
        server.start();
        server.join();
    }

    record Exchange(Request request, Response response) implements Server.Answer {
        public InputStream body() { return Content.Source.asInputStream(request); }
        public String path() { return Request.getPathInContext(request); }
        public String method() { return request.getMethod(); }
        public void header(String name, String value) { response.getHeaders().put(name, value); }
        public OutputStream begin(int status, long length) {
            response.setStatus(status);
            if (length > 0) {
                response.getHeaders().put("Content-Length", length);
            }
            return Content.Sink.asOutputStream(response);
        }
    }
}
