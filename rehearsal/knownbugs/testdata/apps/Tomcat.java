import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.apache.catalina.connector.Connector;
import org.apache.catalina.core.StandardContext;
import org.apache.catalina.startup.Tomcat;

/**
 * Tomcat, stopped by a shutdown hook as catalina.sh does it. UNLOAD_DELAY is unloadDelay in ms, 2000 by default; KEEP_ALIVE is
 * maxKeepAliveRequests.
 */
public class Main {
    public static void main(String[] args) throws Exception {
        var tomcat = new Tomcat();
        tomcat.setBaseDir(args[0]);
        var connector = new Connector();
        connector.setPort(Integer.parseInt(System.getenv("PORT")));
        connector.setProperty("address", "127.0.0.1");
        if (System.getenv("KEEP_ALIVE") != null) connector.setProperty("maxKeepAliveRequests", System.getenv("KEEP_ALIVE"));
        tomcat.setConnector(connector);
        var context = (StandardContext) tomcat.addContext("", args[0]);
        if (System.getenv("UNLOAD_DELAY") != null) context.setUnloadDelay(Long.parseLong(System.getenv("UNLOAD_DELAY")));
        Tomcat.addServlet(context, "all", new HttpServlet() {
            @Override
            protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
                try {
                    if (request.getRequestURI().equals("/slow")) Thread.sleep(3000);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
                response.getOutputStream().write("hello ".repeat(100).getBytes());
            }
        });
        context.addServletMappingDecoded("/*", "all");
        tomcat.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                tomcat.stop();
                tomcat.destroy();
            } catch (Exception e) {
                e.printStackTrace();
            }
        }));
        tomcat.getServer().await();
    }
}
