import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.util.zip.GZIPInputStream;

/** Prints each line of a gzip watch as soon as it has come. Java's decoder fails unless the body is whole. */
class Watch {
    public static void main(String[] args) throws Exception {
        HttpURLConnection connection = (HttpURLConnection) URI.create(args[0]).toURL().openConnection();
        connection.setRequestProperty("Accept", "application/json"); // by itself it asks for HTML
        connection.setRequestProperty("Accept-Encoding", "gzip");
        try (InputStream body = new GZIPInputStream(connection.getInputStream())) {
            byte[] part = new byte[4096];
            for (int n; (n = body.read(part)) >= 0; ) {
                System.out.write(part, 0, n);
                System.out.flush();
            }
        }
    }
}
