import java.io.FileInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.WebSocket;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * A session across a drain: java Session.java http1|http2|okhttp|netty|apache|jetty|websocket URL
 *
 * <p>Makes the requests that sessionapp_test.go knows, until it is told "enough". Prints what has
 * failed, and how many requests there were.
 */
public class Session {
  static final String BODY = "x".repeat(3000);
  static final AtomicInteger count = new AtomicInteger(), failed = new AtomicInteger();
  static volatile boolean enough;
  static HttpClient client;
  static Exchange exchange = Session::byTheJDK;
  static String url;

  /** Returns the body of a response with status 200; body is null without one. */
  interface Exchange {
    String send(String method, String path, String body) throws Exception;
  }

  public static void main(String[] args) throws Exception {
    url = args[1];
    client =
        HttpClient.newBuilder()
            .version(args[0].equals("http2") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1)
            .sslContext(trusting(System.getenv("SESSION_CA")))
            .build();
    switch (args[0]) {
      case "okhttp" -> exchange = okhttp();
      case "netty" -> exchange = netty();
      case "apache" -> exchange = apache();
      case "jetty" -> exchange = jetty();
    }
    if (args[0].equals("websocket")) overWebSocket();
    else overHTTP();
    System.out.println(count + " requests, " + failed + " failed");
    System.exit(failed.get() > 0 ? 1 : 0);
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

  static String byTheJDK(String method, String path, String body) throws Exception {
    var request =
        HttpRequest.newBuilder(URI.create(url + path))
            .method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
            .build();
    var answer = client.send(request, BodyHandlers.ofString());
    return checked(answer.statusCode(), answer.body());
  }

  static String checked(int status, String body) throws Exception {
    if (status != 200) throw new Exception(status + " " + body);
    return body;
  }

  // HTTP/2 by prior knowledge, with the SETTINGS that each library sends by default.

  static Exchange okhttp() {
    var client = new okhttp3.OkHttpClient.Builder().protocols(List.of(okhttp3.Protocol.H2_PRIOR_KNOWLEDGE)).build();
    return (method, path, body) -> {
      var content = body == null ? null : okhttp3.RequestBody.create(body, null);
      var request = new okhttp3.Request.Builder().url(url + path).method(method, content).build();
      try (var answer = client.newCall(request).execute()) {
        return checked(answer.code(), answer.body().string());
      }
    };
  }

  static Exchange netty() {
    var client =
        reactor.netty.http.client.HttpClient.create().protocol(reactor.netty.http.HttpProtocol.H2C).baseUrl(url);
    return (method, path, body) -> {
      var content = reactor.core.publisher.Mono.justOrEmpty(body);
      return client
          .request(io.netty.handler.codec.http.HttpMethod.valueOf(method))
          .uri(path)
          .send(reactor.netty.ByteBufFlux.fromString(content))
          .responseSingle((answer, text) -> text.asString().map(t -> answer.status().code() + " " + t))
          .map(t -> t.startsWith("200 ") ? t.substring(4) : t)
          .block();
    };
  }

  static Exchange apache() {
    var client = org.apache.hc.client5.http.impl.async.HttpAsyncClients.customHttp2().build();
    client.start();
    return (method, path, body) -> {
      var request = org.apache.hc.client5.http.async.methods.SimpleRequestBuilder.create(method).setUri(url + path);
      if (body != null) request.setBody(body, org.apache.hc.core5.http.ContentType.TEXT_PLAIN);
      var answer = client.execute(request.build(), null).get();
      return checked(answer.getCode(), answer.getBodyText());
    };
  }

  static Exchange jetty() throws Exception {
    var transport = new org.eclipse.jetty.http2.client.transport.HttpClientTransportOverHTTP2(
        new org.eclipse.jetty.http2.client.HTTP2Client());
    var client = new org.eclipse.jetty.client.HttpClient(transport);
    client.start();
    return (method, path, body) -> {
      var request = client.newRequest(url + path).method(method);
      if (body != null) request.body(new org.eclipse.jetty.client.StringRequestContent(body));
      var answer = request.send();
      return checked(answer.getStatus(), answer.getContentAsString());
    };
  }

  static String ask(String method, String path, String body, Predicate<String> good) {
    count.incrementAndGet();
    try {
      String answer = exchange.send(method, path, body);
      if (!good.test(answer)) throw new Exception(answer);
      return answer;
    } catch (Exception e) {
      failed.incrementAndGet();
      System.out.println("failed: " + method + " " + path + ": " + e);
      return "";
    }
  }

  static String next() {
    return ask("GET", "/next", null, text -> text.equals("more") || text.equals("enough"));
  }

  static void worker(long pause) {
    while (!enough && failed.get() < 20) {
      if (next().equals("enough")) enough = true;
      ask("POST", "/echo", BODY, BODY::equals);
      try {
        Thread.sleep(pause);
      } catch (InterruptedException e) {
        return;
      }
    }
  }

  static void overHTTP() throws Exception {
    together(Collections.nCopies(8, Session::next)); // connections that are idle at the end of the drain
    var all = new ArrayList<Runnable>();
    all.add(() -> ask("GET", "/slow", null, "slow"::equals));
    all.add(() -> ask("POST", "/slow", BODY, BODY::equals));
    all.add(() -> ask("GET", "/drip", null, text -> text.endsWith("drip\nend\n")));
    for (var pause : System.getenv("SESSION_PAUSES").split(",")) all.add(() -> worker(Long.parseLong(pause)));
    together(all);
  }

  static void together(List<Runnable> all) throws InterruptedException {
    var threads = new ArrayList<Thread>();
    for (var one : all) threads.add(new Thread(one));
    for (var thread : threads) thread.start();
    for (var thread : threads) thread.join();
  }

  static void overWebSocket() throws Exception {
    while (!enough) {
      count.incrementAndGet();
      var closed = new CompletableFuture<String>();
      var listener =
          new WebSocket.Listener() {
            CompletableFuture<WebSocket> sent; // one message at a time

            @Override
            public void onOpen(WebSocket ws) {
              sent = ws.sendText("hello", true);
              ws.request(1);
            }

            @Override
            public CompletionStage<?> onText(WebSocket ws, CharSequence text, boolean last) {
              enough = text.toString().equals("enough");
              if (enough) ws.sendClose(WebSocket.NORMAL_CLOSURE, "");
              else if (!ws.isOutputClosed()) sent = sent.thenCompose(w -> w.sendText("hello", true));
              ws.request(1);
              return null;
            }

            @Override
            public CompletionStage<?> onClose(WebSocket ws, int code, String reason) {
              closed.complete(code + " " + reason);
              return null;
            }

            @Override
            public void onError(WebSocket ws, Throwable e) {
              closed.completeExceptionally(e);
            }
          };
      client.newWebSocketBuilder().buildAsync(URI.create(url.replaceFirst("http", "ws") + "/ws"), listener).get();
      System.out.println("closed: " + closed.get());
    }
  }
}
