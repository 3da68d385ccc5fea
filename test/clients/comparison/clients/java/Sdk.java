// Makes the calls that CALLS names with the official SDK for Java, and prints one JSON line for each.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.core.JsonValue;
import com.openai.core.MultipartField;
import com.openai.core.ObjectMappers;
import com.openai.core.http.StreamResponse;
import com.openai.errors.OpenAIException;
import com.openai.errors.OpenAIServiceException;
import com.openai.helpers.ChatCompletionAccumulator;
import com.openai.models.FunctionDefinition;
import com.openai.models.FunctionParameters;
import com.openai.models.ReasoningEffort;
import com.openai.models.ResponseFormatJsonSchema;
import com.openai.models.audio.speech.SpeechCreateParams;
import com.openai.models.audio.transcriptions.TranscriptionCreateParams;
import com.openai.models.chat.completions.ChatCompletionChunk;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionStreamOptions;
import com.openai.models.completions.CompletionCreateParams;
import com.openai.models.embeddings.EmbeddingCreateParams;
import com.openai.models.images.ImageGenerateParams;
import com.openai.models.moderations.ModerationCreateParams;
import com.openai.models.responses.FunctionTool;
import com.openai.models.responses.ResponseCreateParams;
import java.io.ByteArrayInputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;

final class Sdk {
  private static final JsonMapper JSON = ObjectMappers.jsonMapper();
  private static final String MODEL = System.getenv("MODEL");
  private static final OpenAIClient CLIENT =
      OpenAIOkHttpClient.builder().baseUrl(System.getenv("BASE_URL")).apiKey(System.getenv("API_KEY")).build();
  private static final Map<String, Object> CITY =
      Map.of(
          "type", "object",
          "properties", Map.of("city", Map.of("type", "string")),
          "required", List.of("city"),
          "additionalProperties", false);

  public static void main(String[] words) throws Exception {
    // In the locale that programs are started with, System.out has no letters beyond ASCII.
    var lines = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    for (var call : System.getenv("CALLS").split(",")) {
      var line = new LinkedHashMap<String, Object>();
      line.put("call", call);
      try {
        line.put("result", make(call));
      } catch (OpenAIException error) {
        line.put("error", describe(error));
      }
      lines.println(JSON.writeValueAsString(line));
    }
    CLIENT.close();
  }

  private static Object make(String call) throws IOException {
    var prompt = "Call " + call;
    var completions = CLIENT.chat().completions();
    return switch (call) {
      case "models.list" -> CLIENT.models().list().response();
      case "models.retrieve" -> CLIENT.models().retrieve(MODEL);
      case "chat", "error.bad_request", "error.rate_limit", "error.server" ->
          completions.create(chat(call).build());
      case "error.unknown_model" -> completions.create(chat(call).model("no-such-model").build());
      case "chat.stream" -> drainChat(chat(call));
      case "chat.stream.usage" ->
          drainChat(chat(call).streamOptions(ChatCompletionStreamOptions.builder().includeUsage(true).build()));
      case "chat.tools" -> completions.create(chat(call).addFunctionTool(weather()).build());
      case "chat.tools.stream" -> drainChat(chat(call).addFunctionTool(weather()));
      case "chat.json_schema" -> completions.create(chat(call).responseFormat(citySchema()).build());
      case "chat.n2" -> completions.create(chat(call).n(2).build());
      case "chat.logprobs" -> completions.create(chat(call).logprobs(true).topLogprobs(2).build());
      case "chat.reasoning" -> completions.create(chat(call).reasoningEffort(ReasoningEffort.LOW).build());
      case "responses" -> CLIENT.responses().create(response(call).build());
      case "responses.stream" -> drain(CLIENT.responses().createStreaming(response(call).build()));
      case "responses.tools" -> CLIENT.responses().create(response(call).addTool(weatherTool()).build());
      case "embeddings" -> embed(prompt, EmbeddingCreateParams.EncodingFormat.FLOAT);
      case "embeddings.base64" -> embed(prompt, EmbeddingCreateParams.EncodingFormat.BASE64);
      case "images" -> CLIENT.images().generate(image(prompt));
      case "images.stream" -> drain(CLIENT.images().generateStreaming(image(prompt)));
      case "speech" -> speech(prompt);
      case "transcription" -> CLIENT.audio().transcriptions().create(transcription(prompt));
      case "moderations" ->
          CLIENT.moderations().create(ModerationCreateParams.builder().model(MODEL).input(prompt).build());
      case "completions" ->
          CLIENT.completions().create(CompletionCreateParams.builder().model(MODEL).prompt(prompt).build());
      default -> throw new IllegalArgumentException("no such call: " + call);
    };
  }

  private static ChatCompletionCreateParams.Builder chat(String call) {
    return ChatCompletionCreateParams.builder().model(MODEL).addUserMessage("Call " + call);
  }

  private static FunctionDefinition weather() {
    var parameters = FunctionParameters.builder();
    CITY.forEach((name, value) -> parameters.putAdditionalProperty(name, JsonValue.from(value)));
    return FunctionDefinition.builder()
        .name("get_weather")
        .description("The weather in a city.")
        .parameters(parameters.build())
        .build();
  }

  private static FunctionTool weatherTool() {
    var parameters = FunctionTool.Parameters.builder();
    CITY.forEach((name, value) -> parameters.putAdditionalProperty(name, JsonValue.from(value)));
    return FunctionTool.builder().name("get_weather").parameters(parameters.build()).strict(true).build();
  }

  private static ResponseFormatJsonSchema citySchema() {
    var schema = ResponseFormatJsonSchema.JsonSchema.Schema.builder();
    CITY.forEach((name, value) -> schema.putAdditionalProperty(name, JsonValue.from(value)));
    return ResponseFormatJsonSchema.builder()
        .jsonSchema(
            ResponseFormatJsonSchema.JsonSchema.builder().name("city").schema(schema.build()).strict(true).build())
        .build();
  }

  /** The chunks, and the completion that the accumulator of the SDK makes of them. */
  private static Object drainChat(ChatCompletionCreateParams.Builder params) {
    var accumulator = ChatCompletionAccumulator.create();
    var chunks = new ArrayList<ChatCompletionChunk>();
    try (var stream = CLIENT.chat().completions().createStreaming(params.build())) {
      stream.stream().map(accumulator::accumulate).forEach(chunks::add);
    }
    return Map.of("chunks", chunks, "completion", accumulator.chatCompletion());
  }

  private static <T> List<T> drain(StreamResponse<T> events) {
    try (events) {
      return events.stream().toList();
    }
  }

  private static ResponseCreateParams.Builder response(String call) {
    return ResponseCreateParams.builder().model(MODEL).input("Call " + call);
  }

  private static Object embed(String prompt, EmbeddingCreateParams.EncodingFormat format) {
    var params = EmbeddingCreateParams.builder().model(System.getenv("EMBEDDING_MODEL"));
    return CLIENT.embeddings().create(params.input(prompt).encodingFormat(format).build());
  }

  private static ImageGenerateParams image(String prompt) {
    return ImageGenerateParams.builder().model(MODEL).prompt(prompt).build();
  }

  private static Object speech(String prompt) throws IOException {
    var params = SpeechCreateParams.builder().model(MODEL).input(prompt).voice("alloy").build();
    try (var answer = CLIENT.audio().speech().create(params)) {
      return Map.of(
          "content_type", answer.headers().values("content-type"), "bytes", answer.body().readAllBytes());
    }
  }

  private static TranscriptionCreateParams transcription(String prompt) {
    var file =
        MultipartField.<InputStream>builder()
            .value(new ByteArrayInputStream(silence()))
            .filename("silence.wav")
            .contentType("audio/wav")
            .build();
    return TranscriptionCreateParams.builder().model(MODEL).file(file).prompt(prompt).build();
  }

  /** A wave file of a tenth of a second: 16 bits, one channel, 8 kHz. */
  private static byte[] silence() {
    var samples = 1600;
    var file = ByteBuffer.allocate(44 + samples).order(ByteOrder.LITTLE_ENDIAN);
    file.put("RIFF".getBytes(StandardCharsets.US_ASCII)).putInt(36 + samples);
    file.put("WAVEfmt ".getBytes(StandardCharsets.US_ASCII)).putInt(16);
    file.putShort((short) 1).putShort((short) 1).putInt(8000).putInt(16_000).putShort((short) 2).putShort((short) 16);
    file.put("data".getBytes(StandardCharsets.US_ASCII)).putInt(samples);
    return file.array();
  }

  private static Map<String, Object> describe(OpenAIException error) {
    var fields = new LinkedHashMap<String, Object>();
    fields.put("class", error.getClass().getName());
    fields.put("message", error.getMessage());
    if (error instanceof OpenAIServiceException answer) {
      JsonNode body = JSON.valueToTree(answer.body());
      fields.put("status", answer.statusCode());
      fields.put("code", read(answer::code));
      fields.put("param", read(answer::param));
      fields.put("type", read(answer::type));
      fields.put("body", body);
    }
    return fields;
  }

  /** A field of another type than the API has, such as a number as code, makes the SDK throw. */
  private static String read(Supplier<Optional<String>> field) {
    try {
      return field.get().orElse(null);
    } catch (OpenAIException error) {
      return error.getClass().getName();
    }
  }
}
