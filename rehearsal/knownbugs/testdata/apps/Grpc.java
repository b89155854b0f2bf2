import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.protobuf.services.ProtoReflectionServiceV1;
import io.grpc.stub.StreamObserver;
import io.grpc.testing.protobuf.SimpleRequest;
import io.grpc.testing.protobuf.SimpleResponse;
import io.grpc.testing.protobuf.SimpleServiceGrpc;
import java.net.InetSocketAddress;
import java.util.concurrent.TimeUnit;

/** grpc-java with its test service: a call with a message takes 1.5 s. With FINISH a shutdown hook finishes the calls in flight. */
public class Grpc {
    static class Service extends SimpleServiceGrpc.SimpleServiceImplBase {
        @Override
        public void unaryRpc(SimpleRequest request, StreamObserver<SimpleResponse> response) {
            try {
                if (!request.getRequestMessage().isEmpty()) Thread.sleep(1500);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            response.onNext(SimpleResponse.newBuilder().setResponseMessage("hello").build());
            response.onCompleted();
        }
    }

    public static void main(String[] args) throws Exception {
        var server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT"))))
            .addService(new Service()).addService(ProtoReflectionServiceV1.newInstance()).build().start();
        if (System.getenv("FINISH") != null) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                try {
                    server.shutdown().awaitTermination(20, TimeUnit.SECONDS);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }));
        }
        server.awaitTermination();
    }
}
