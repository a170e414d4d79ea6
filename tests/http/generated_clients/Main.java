// A program on the client that openapi-generator makes (Java, native): appends by compare-and-set, whole batches, reads.

import java.io.File;
import java.io.FileNotFoundException;
import java.io.UncheckedIOException;
import java.net.http.HttpRequest;
import java.nio.file.Path;
import java.util.List;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.ApiResponse;
import org.openapitools.client.api.RecordsApi;
import org.openapitools.client.api.TopicsApi;
import org.openapitools.client.model.*;

public class Main {
  static Produce batch(String... values) {
    Produce made = new Produce();
    for (String value : values) {
      made.addRecordsItem(new RecordIn().value(value));
    }
    return made;
  }

  public static void main(String[] args) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(args[0]);
    TopicsApi topics = new TopicsApi(client);
    RecordsApi records = new RecordsApi(client);
    for (String name : List.of("orders", "copy")) {
      topics.createTopic(new NewTopic().name(name));
    }

    Appended first = records.appendRecords("orders", 0, batch("a").expectedOffset(0L));
    System.out.println("appended " + first.getBaseOffset() + " " + first.getNextOffset());
    OFFSETMISMATCH refused;
    try {
      records.appendRecords("orders", 0, batch("late").expectedOffset(0L));
      throw new AssertionError("a late append landed");
    } catch (ApiException error) {
      refused = client.getObjectMapper().readValue(error.getResponseBody(), OFFSETMISMATCH.class);
      System.out.println("refused " + refused.getCode().getValue() + " " + refused.getNextOffset());
    }
    Long next = refused.getNextOffset();
    Appended second = records.appendRecords("orders", 0, batch("b", "c").expectedOffsets(List.of(next, next + 1)));
    System.out.println("appended " + second.getBaseOffset() + " " + second.getNextOffset());

    ApiResponse<File> whole =
        records.readBatchesWithHttpInfo("orders", 0, 0L, null, null, null, null, 1, null, null, null, null, null, null);
    String position = whole.getHeaders().get("fenceline-position").get(0);
    // Of a body that is a file, this generator's client sends the name. So the bytes are put in here.
    Path file = whole.getData().toPath();
    ApiClient raw = new ApiClient();
    raw.updateBaseUri(args[0]);
    raw.setRequestInterceptor(request -> request.method("POST", bytesOf(file)));
    Appended sent = new RecordsApi(raw).appendBatch("copy", 0, whole.getData(), null, null, null, null, 0L, null);
    System.out.println("batch " + position + " " + sent.getNextOffset());

    ProduceMany several = new ProduceMany()
        .addPartitionsItem(entry("copy", "d"))
        .addPartitionsItem(entry("nowhere", "e"));
    List<ProduceResult> results = records.appendBatches(several).getResults();
    UNKNOWNTOPICORPARTITION why = (UNKNOWNTOPICORPARTITION) results.get(1).getError().getActualInstance();
    System.out.println("several " + results.get(0).getBaseOffset() + " " + why.getCode().getValue());

    for (String topic : List.of("orders", "copy")) {
      Page page = records.readRecords(
          topic, 0, 0L, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
          null, null);
      for (RecordOut record : page.getRecords()) {
        boolean isLong = record.getTimestamp() > 1L << 32;
        System.out.println(topic + " " + record.getOffset() + " " + record.getValue() + " " + isLong);
      }
    }
    System.out.println("first at a time " + records.getOffsetForTime("orders", 0, 1L).getOffset());
  }

  static HttpRequest.BodyPublisher bytesOf(Path file) {
    try {
      return HttpRequest.BodyPublishers.ofFile(file);
    } catch (FileNotFoundException error) {
      throw new UncheckedIOException(error);
    }
  }

  static ProduceEntry entry(String topic, String value) {
    return new ProduceEntry().topic(topic).partition(0L).addRecordsItem(new RecordIn().value(value));
  }
}
