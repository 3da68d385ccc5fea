// Sends the requests of the file REQUESTS with the JDK's HttpClient and prints one JSON line for the answer to each.

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.stream.Collectors;

final class Plain {
  public static void main(String[] words) throws Exception {
    // As it is by default: HTTP/2 is preferred, so a request over plain TCP offers an upgrade to h2c.
    var client = HttpClient.newHttpClient();
    for (var line : Files.readAllLines(Path.of(System.getenv("REQUESTS")))) {
      var fields = line.split("\t", -1);
      System.out.println("{\"call\":" + quoted(fields[0]) + "," + outcome(client, fields) + "}");
    }
  }

  private static String outcome(HttpClient client, String[] fields) throws InterruptedException {
    var body = Base64.getDecoder().decode(fields[4]);
    var publisher = fields[1].equals("GET") ? BodyPublishers.noBody() : BodyPublishers.ofByteArray(body);
    var request =
        HttpRequest.newBuilder(URI.create(System.getenv("BASE_URL") + fields[2]))
            .method(fields[1], publisher)
            .header("Authorization", "Bearer " + System.getenv("API_KEY"));
    if (!fields[3].isEmpty()) request.header("Content-Type", fields[3]);
    try {
      // A stream is read as it comes, by an InputStream.
      var answer = client.send(request.build(), BodyHandlers.ofInputStream());
      try (var stream = answer.body()) {
        var bytes = Base64.getEncoder().encodeToString(stream.readAllBytes());
        return "\"result\":{\"status\":%d,\"headers\":{%s},\"body\":%s}"
            .formatted(answer.statusCode(), members(answer.headers()), quoted(bytes));
      }
    } catch (IOException error) {
      var message = String.valueOf(error.getMessage());
      return "\"error\":{\"class\":%s,\"message\":%s}".formatted(quoted(error.getClass().getName()), quoted(message));
    }
  }

  private static String members(HttpHeaders headers) {
    return headers.map().entrySet().stream()
        .map(header -> quoted(header.getKey().toLowerCase()) + ":" + quoted(String.join(", ", header.getValue())))
        .collect(Collectors.joining(","));
  }

  /** A JSON string. */
  private static String quoted(String text) {
    return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replaceAll("\\p{Cntrl}", " ") + '"';
  }
}
