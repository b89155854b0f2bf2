import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Spring Boot with Tomcat and its defaults: server.shutdown is graceful since 3.4. */
@EnableAutoConfiguration
@RestController
public class Spring {
    @GetMapping("/slow")
    public String slow() throws InterruptedException {
        Thread.sleep(1500);
        return fast();
    }

    @GetMapping("/fast")
    public String fast() { return "hello ".repeat(100); }

    public static void main(String[] args) { SpringApplication.run(Spring.class, args); }
}
