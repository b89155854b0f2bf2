// Java's HttpClient. See client.py.
import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.zip.CRC32;
import javax.net.ssl.*;

public class Client {
    static final Duration LIMIT = Duration.ofSeconds(5);

    public static void main(String[] args) throws Exception {
        // Before the first use of the client: a certificate that nobody signed has no name to check.
        System.setProperty("jdk.internal.httpclient.disableHostnameVerification", "true");
        SSLContext tls = SSLContext.getInstance("TLS");
        tls.init(null, new TrustManager[] {new X509TrustManager() {
            public void checkClientTrusted(X509Certificate[] chain, String type) {}
            public void checkServerTrusted(X509Certificate[] chain, String type) {}
            public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
        }}, new SecureRandom());
        ExecutorService pool = Executors.newFixedThreadPool(160);
        ExecutorService shared = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] task = line.split(" ");
            pool.submit(() -> {
                StringBuilder out = new StringBuilder(task[0]);
                try {
                    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).executor(shared).sslContext(tls).build();
                    for (int i = 3; i < task.length; i++) {
                        words(client, task[2], task[i], out);
                    }
                } catch (Throwable e) {
                    out.append(" broken:").append(e.toString().replace(' ', '_'));
                }
                synchronized (System.out) {
                    System.out.println(out);
                    System.out.flush();
                }
            });
        }
        System.exit(0);
    }

    static void words(HttpClient client, String url, String word, StringBuilder out) throws Exception {
        if (word.startsWith("~")) {
            Thread.sleep(Integer.parseInt(word.substring(1)));
            return;
        }
        String[] times = word.split("\\*"), request = times[0].split("@"), path = request[1].split(":");
        for (int n = times.length > 1 ? Integer.parseInt(times[1]) : 1; n > 0; n--) {
            HttpRequest.BodyPublisher body = HttpRequest.BodyPublishers.noBody();
            if (path.length > 1) {
                boolean chunked = path[1].endsWith("c");
                byte[] bytes = new byte[Integer.parseInt(path[1].replace("c", ""))];
                Arrays.fill(bytes, (byte) 'x');
                body = chunked ? HttpRequest.BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(bytes))
                        : HttpRequest.BodyPublishers.ofByteArray(bytes);
            }
            out.append(' ').append(once(client, HttpRequest.newBuilder(URI.create(url + path[0])).timeout(LIMIT).method(request[0], body).build()));
        }
    }

    static String once(HttpClient client, HttpRequest request) {
        int status = 0;
        try {
            HttpResponse<InputStream> response = client.send(request, HttpResponse.BodyHandlers.ofInputStream());
            status = response.statusCode();
            byte[] got = response.body().readAllBytes();
            CRC32 sum = new CRC32();
            sum.update(got);
            return String.format("%d:%d:%08x", status, got.length, sum.getValue());
        } catch (Exception e) {
            StringBuilder all = new StringBuilder();
            for (Throwable t = e; t != null; t = t.getCause()) {
                all.append(t).append(' ');
            }
            String text = all.toString();
            if (text.contains("imeout") || text.contains("timed out")) {
                return "error:timeout";
            }
            if (status != 0) {
                return "truncated:" + status;
            }
            if (text.contains("ConnectException")) {
                return "error:connect";
            }
            if (text.contains("received no bytes") || text.contains("EOF reached while reading")) {
                return "error:eof";
            }
            if (text.contains("reset") || text.contains("Broken pipe")) {
                return "error:reset";
            }
            return "error:protocol";
        }
    }
}
