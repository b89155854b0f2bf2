// The paths of app.py by the server of the JDK, and by Jetty: java Server jdk|jetty PORT
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.concurrent.Executors;

public class Server {
    interface Answer {
        InputStream body() throws IOException;
        String path();
        String method();
        void header(String name, String value);
        OutputStream begin(int status, long length) throws IOException; // -1: unknown
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("jetty")) {
            Jetty.serve(port);
            return;
        }
        System.setProperty("sun.net.httpserver.idleInterval", "2");
        HttpServer server = HttpServer.create(new InetSocketAddress(port), 128);
        server.createContext("/", exchange -> {
            try (exchange) {
                serve(new Exchange(exchange));
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(32));
        server.start();
    }

    record Exchange(HttpExchange of) implements Answer {
        public InputStream body() { return of.getRequestBody(); }
        public String path() { return of.getRequestURI().getPath(); }
        public String method() { return of.getRequestMethod(); }
        public void header(String name, String value) { of.getResponseHeaders().set(name, value); }
        public OutputStream begin(int status, long length) throws IOException {
            // Its own words for no body, and for one of unknown length.
            boolean isEmpty = length == 0 || method().equals("HEAD");
            if (method().equals("HEAD") && length > 0) {
                header("Content-Length", "" + length);
            }
            of.sendResponseHeaders(status, isEmpty ? -1 : Math.max(length, 0));
            return isEmpty ? OutputStream.nullOutputStream() : of.getResponseBody();
        }
    }

    static void whole(Answer a, int status, byte[] body) throws IOException {
        OutputStream out = a.begin(status, body.length);
        if (!a.method().equals("HEAD")) {
            out.write(body);
        }
        out.close();
    }

    static void serve(Answer a) throws IOException {
        byte[] ok = "ok\n".getBytes();
        switch (a.path()) {
            case "/ok" -> whole(a, 200, ok);
            case "/close" -> {
                a.header("Connection", "close");
                whole(a, 200, ok);
            }
            case "/big" -> {
                byte[] big = new byte[1 << 20];
                Arrays.fill(big, (byte) 'b');
                whole(a, 200, big);
            }
            case "/204" -> whole(a, 204, new byte[0]);
            case "/304" -> whole(a, 304, new byte[0]);
            case "/early" -> whole(a, 413, "too large\n".getBytes());
            case "/echo" -> whole(a, 200, (a.body().readAllBytes().length + " bytes\n").getBytes());
            case "/stream" -> {
                OutputStream out = a.begin(200, -1);
                for (int n = 0; n < 5; n++) {
                    out.write(("part " + n + "\n").getBytes());
                    out.flush();
                    pause(20);
                }
                out.close();
            }
            case "/cut" -> {
                OutputStream out = a.begin(200, 5000);
                out.write(new byte[1000]);
                out.flush();
                pause(50);
                throw new IOException("cut");
            }
            default -> whole(a, 404, "nothing here\n".getBytes());
        }
    }

    static void pause(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
