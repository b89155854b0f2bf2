import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.SQLException;

/** Transactions on a pool of 8 connections until stdin ends. It prints a line for each: done, refused, or failed. */
class Pool {
    static volatile boolean stopped;

    public static void main(String[] args) throws Exception {
        var config = new HikariConfig();
        config.setJdbcUrl(args[0]);
        config.setMaximumPoolSize(8);
        config.setAutoCommit(false);
        try (var pool = new HikariDataSource(config)) {
            var workers = new Thread[8];
            for (int i = 0; i < workers.length; i++) {
                workers[i] = new Thread(() -> {
                    while (!stopped) System.out.println(transaction(pool));
                });
                workers[i].start();
            }
            while (System.in.read() >= 0) {}
            stopped = true;
            for (var worker : workers) worker.join();
        }
    }

    static String transaction(HikariDataSource pool) {
        boolean began = false;
        try (var connection = pool.getConnection(); var statement = connection.createStatement()) {
            statement.execute("SELECT 1"); // the driver sends BEGIN with it
            began = true;
            statement.execute("INSERT INTO done VALUES (1)");
            statement.execute("SELECT pg_sleep(0.02)");
            connection.commit();
            return "done";
        } catch (SQLException e) {
            return (began ? "failed " : "refused ") + e.getSQLState() + " " + e.getMessage().replace('\n', ' ');
        }
    }
}
