import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.CharBuffer;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Reads streams of model servers without an SDK: java Stream KIND, and on each line of standard input a URL and, of https,
 * the file of its authority
 *
 * <p>Prints of each "begun" when some words have come, at last what has come: a line of JSON.
 */
public class Stream {
  static int words;
  static String error, end, rest, authority;

  static synchronized void take(String line) {
    if (line.contains("w" + (words + 1) + " ")) {
      if (++words == 5) System.out.println("begun");
    } else if (line.contains("the server is shutting down")) error = "error event";
    else if (line.contains("[DONE]")) end = "stop";
  }

  static synchronized void part(String text) {
    String all = rest + text;
    int from = 0;
    for (int at; (at = all.indexOf('\n', from)) >= 0; from = at + 1) take(all.substring(from, at));
    rest = all.substring(from);
  }

  static void read(InputStream in) throws IOException {
    byte[] b = new byte[4096];
    for (int n; (n = in.read(b)) >= 0; ) part(new String(b, 0, n));
  }

  public static void main(String[] args) {
    var in = new java.util.Scanner(System.in);
    while (in.hasNextLine()) {
      String[] line = in.nextLine().split(" ");
      authority = line[line.length - 1];
      session(args[0], line[0]);
    }
    System.exit(0);
  }

  static void session(String kind, String url) {
    words = 0;
    error = end = null;
    rest = "";
    try {
      ask(kind, url);
    } catch (Throwable e) {
      while (e.getCause() != null && (e.getMessage() == null || e.getMessage().contains("Exception"))) e = e.getCause();
      String message = e.getClass().getSimpleName() + ": " + e.getMessage();
      error = error == null ? message : error + ", then " + message;
    }
    System.out.printf("{\"words\":%d,\"error\":%s,\"end\":%s}%n", words, quote(error), quote(end));
  }

  static String quote(String s) {
    return s == null ? "null" : '"' + s.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + '"';
  }

  static void ask(String kind, String url) throws Throwable {
    switch (kind) {
      case "jdk":
      case "jdk-h2":
        jdk(url, kind.endsWith("h2"));
        return;
      case "okhttp":
      case "okhttp-h2":
        okhttp(url, kind.endsWith("h2"));
        return;
      case "netty":
      case "netty-h2":
        netty(url, kind.endsWith("h2"));
        return;
      case "apache":
        apache(url);
        return;
      case "apache-h2":
        apacheH2(url);
        return;
      case "jetty":
      case "jetty-h2":
        jetty(url, kind.endsWith("h2"));
        return;
      case "grpc":
        grpc(URI.create(url));
        return;
    }
    throw new IllegalArgumentException(kind);
  }

  static void jdk(String url, boolean h2) throws Exception {
    var builder = java.net.http.HttpClient.newBuilder();
    builder.version(h2 ? java.net.http.HttpClient.Version.HTTP_2 : java.net.http.HttpClient.Version.HTTP_1_1);
    if (h2) builder.sslContext(trusting(authority));
    var request =
        java.net.http.HttpRequest.newBuilder(URI.create(url))
            .POST(java.net.http.HttpRequest.BodyPublishers.ofString("{}"))
            .build();
    read(builder.build().send(request, java.net.http.HttpResponse.BodyHandlers.ofInputStream()).body());
  }

  static SSLContext trusting(String file) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null);
    try (var in = new FileInputStream(file)) {
      store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
    }
    var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    var context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    return context;
  }

  static void okhttp(String url, boolean h2) throws Exception {
    var client =
        new okhttp3.OkHttpClient.Builder()
            .protocols(List.of(h2 ? okhttp3.Protocol.H2_PRIOR_KNOWLEDGE : okhttp3.Protocol.HTTP_1_1))
            .retryOnConnectionFailure(false)
            .readTimeout(Duration.ofMinutes(1))
            .build();
    var body = okhttp3.RequestBody.create("{}", okhttp3.MediaType.get("application/json"));
    try (var r = client.newCall(new okhttp3.Request.Builder().url(url).post(body).build()).execute()) {
      read(r.body().byteStream());
    }
  }

  static void netty(String url, boolean h2) {
    reactor.netty.http.client.HttpClient.create()
        .protocol(h2 ? reactor.netty.http.HttpProtocol.H2C : reactor.netty.http.HttpProtocol.HTTP11)
        .disableRetry(true)
        .post()
        .uri(url)
        .send(reactor.netty.ByteBufFlux.fromString(reactor.core.publisher.Mono.just("{}")))
        .response((response, content) -> content.asString().doOnNext(Stream::part).then())
        .blockLast();
  }

  static void apache(String url) throws Exception {
    try (var client = org.apache.hc.client5.http.impl.classic.HttpClients.custom().disableAutomaticRetries().build()) {
      var post = new org.apache.hc.client5.http.classic.methods.HttpPost(url);
      post.setEntity(new org.apache.hc.core5.http.io.entity.StringEntity("{}"));
      client.execute(
          post,
          response -> {
            read(response.getEntity().getContent());
            return null;
          });
    }
  }

  static void apacheH2(String url) throws Throwable {
    try (var client =
        org.apache.hc.client5.http.impl.async.HttpAsyncClients.customHttp2().disableAutomaticRetries().build()) {
      client.start();
      var done =
          client.execute(
              org.apache.hc.client5.http.async.methods.SimpleRequestProducer.create(
                  org.apache.hc.client5.http.async.methods.SimpleRequestBuilder.post(url)
                      .setBody("{}", org.apache.hc.core5.http.ContentType.APPLICATION_JSON)
                      .build()),
              new org.apache.hc.client5.http.async.methods.AbstractCharResponseConsumer<Void>() {
                protected void start(
                    org.apache.hc.core5.http.HttpResponse r, org.apache.hc.core5.http.ContentType type) {}

                protected int capacityIncrement() {
                  return Integer.MAX_VALUE;
                }

                protected void data(CharBuffer text, boolean last) {
                  part(text.toString());
                }

                protected Void buildResult() {
                  return null;
                }

                public void failed(Exception e) {}

                public void releaseResources() {}
              },
              null);
      done.get();
    } catch (java.util.concurrent.ExecutionException e) {
      throw e.getCause();
    }
  }

  static void jetty(String url, boolean h2) throws Exception {
    var client =
        h2
            ? new org.eclipse.jetty.client.HttpClient(
                new org.eclipse.jetty.http2.client.transport.HttpClientTransportOverHTTP2(
                    new org.eclipse.jetty.http2.client.HTTP2Client()))
            : new org.eclipse.jetty.client.HttpClient();
    client.start();
    var listener = new org.eclipse.jetty.client.InputStreamResponseListener();
    client.POST(url).body(new org.eclipse.jetty.client.StringRequestContent("{}")).send(listener);
    listener.get(1, TimeUnit.MINUTES);
    read(listener.getInputStream());
  }

  static final io.grpc.MethodDescriptor.Marshaller<byte[]> BYTES =
      new io.grpc.MethodDescriptor.Marshaller<>() {
        public InputStream stream(byte[] value) {
          return new ByteArrayInputStream(value);
        }

        public byte[] parse(InputStream in) {
          try {
            return in.readAllBytes();
          } catch (IOException e) {
            throw new RuntimeException(e);
          }
        }
      };

  static void grpc(URI url) throws Exception {
    var request = new ByteArrayOutputStream();
    byte[] one = {0x12, 6, 8, 1, 16, (byte) 0xa0, (byte) 0x9c, 1}; // size 1, interval_us 20000
    for (int n = Integer.parseInt(url.getQuery().replaceAll(".*=", "")); n > 0; n--) request.write(one);
    var method =
        io.grpc.MethodDescriptor.<byte[], byte[]>newBuilder()
            .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
            .setFullMethodName("grpc.testing.TestService/StreamingOutputCall")
            .setRequestMarshaller(BYTES)
            .setResponseMarshaller(BYTES)
            .build();
    var channel =
        io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder.forTarget(url.getAuthority()).usePlaintext().build();
    try {
      var all =
          io.grpc.stub.ClientCalls.blockingServerStreamingCall(
              channel, method, io.grpc.CallOptions.DEFAULT, request.toByteArray());
      while (all.hasNext()) {
        all.next();
        take("w" + (words + 1) + " ");
      }
      end = "stop";
    } catch (io.grpc.StatusRuntimeException e) {
      error = e.getStatus().getCode().name();
    }
  }
}
