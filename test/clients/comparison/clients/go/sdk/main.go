// Makes the calls that CALLS names with the official SDK for Go, and prints one JSON line for each.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
)

type object = map[string]any

var (
	ctx    = context.Background()
	model  = os.Getenv("MODEL")
	client = openai.NewClient(
		option.WithBaseURL(os.Getenv("BASE_URL")),
		option.WithAPIKey(os.Getenv("API_KEY")),
	)
	city = object{
		"type":                 "object",
		"properties":           object{"city": object{"type": "string"}},
		"required":             []string{"city"},
		"additionalProperties": false,
	}
)

// What the SDK hands to its user has the JSON it was read from; the typed fields are views of it.
type raw interface{ RawJSON() string }

func dump(value raw, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return json.RawMessage(value.RawJSON()), nil
}

func drain[T raw](stream *ssestream.Stream[T]) (any, error) {
	defer stream.Close()
	events := []any{}
	for stream.Next() {
		events = append(events, json.RawMessage(stream.Current().RawJSON()))
	}
	return events, stream.Err()
}

func chat(call string) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model:    model,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Call " + call)},
	}
}

func weather(params openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name:        "get_weather",
		Description: openai.String("The weather in a city."),
		Parameters:  city,
	})}
	return params
}

// A stream of a completion: its chunks, and what the accumulator of the SDK makes of them.
func drainChat(params openai.ChatCompletionNewParams) (any, error) {
	stream := client.Chat.Completions.NewStreaming(ctx, params)
	defer stream.Close()
	accumulator := openai.ChatCompletionAccumulator{}
	chunks := []any{}
	for stream.Next() {
		chunk := stream.Current()
		chunks = append(chunks, json.RawMessage(chunk.RawJSON()))
		accumulator.AddChunk(chunk)
	}
	choices := []any{}
	for _, choice := range accumulator.Choices {
		calls := []any{}
		for _, call := range choice.Message.ToolCalls {
			calls = append(calls, object{"name": call.Function.Name, "arguments": call.Function.Arguments})
		}
		choices = append(choices, object{
			"content": choice.Message.Content, "tool_calls": calls, "finish_reason": choice.FinishReason,
		})
	}
	return object{"chunks": chunks, "choices": choices}, stream.Err()
}

func response(call string) responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: model,
		Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("Call " + call)},
	}
}

func embed(call string, format openai.EmbeddingNewParamsEncodingFormat) (any, error) {
	return dump(client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model:          os.Getenv("EMBEDDING_MODEL"),
		Input:          openai.EmbeddingNewParamsInputUnion{OfString: openai.String("Call " + call)},
		EncodingFormat: format,
	}))
}

func image(call string) openai.ImageGenerateParams {
	return openai.ImageGenerateParams{Model: model, Prompt: "Call " + call}
}

func run(call string) (any, error) {
	prompt := "Call " + call
	switch call {
	case "models.list":
		return dump(client.Models.List(ctx))
	case "models.retrieve":
		return dump(client.Models.Get(ctx, model))
	case "chat", "error.bad_request", "error.rate_limit", "error.server":
		return dump(client.Chat.Completions.New(ctx, chat(call)))
	case "error.unknown_model":
		params := chat(call)
		params.Model = "no-such-model"
		return dump(client.Chat.Completions.New(ctx, params))
	case "chat.stream":
		return drainChat(chat(call))
	case "chat.stream.usage":
		params := chat(call)
		params.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
		return drainChat(params)
	case "chat.tools":
		return dump(client.Chat.Completions.New(ctx, weather(chat(call))))
	case "chat.tools.stream":
		return drainChat(weather(chat(call)))
	case "chat.json_schema":
		params := chat(call)
		params.ResponseFormat = openai.ChatCompletionNewParamsResponseFormatUnion{
			OfJSONSchema: &shared.ResponseFormatJSONSchemaParam{
				JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
					Name: "city", Schema: city, Strict: openai.Bool(true),
				},
			},
		}
		return dump(client.Chat.Completions.New(ctx, params))
	case "chat.n2":
		params := chat(call)
		params.N = openai.Int(2)
		return dump(client.Chat.Completions.New(ctx, params))
	case "chat.logprobs":
		params := chat(call)
		params.Logprobs = openai.Bool(true)
		params.TopLogprobs = openai.Int(2)
		return dump(client.Chat.Completions.New(ctx, params))
	case "chat.reasoning":
		params := chat(call)
		params.ReasoningEffort = openai.ReasoningEffortLow
		return dump(client.Chat.Completions.New(ctx, params))
	case "responses":
		return dump(client.Responses.New(ctx, response(call)))
	case "responses.stream":
		return drain(client.Responses.NewStreaming(ctx, response(call)))
	case "responses.tools":
		params := response(call)
		params.Tools = []responses.ToolUnionParam{responses.ToolParamOfFunction("get_weather", city, true)}
		return dump(client.Responses.New(ctx, params))
	case "embeddings":
		return embed(call, openai.EmbeddingNewParamsEncodingFormatFloat)
	case "embeddings.base64":
		return embed(call, openai.EmbeddingNewParamsEncodingFormatBase64)
	case "images":
		return dump(client.Images.Generate(ctx, image(call)))
	case "images.stream":
		return drain(client.Images.GenerateStreaming(ctx, image(call)))
	case "speech":
		answer, err := client.Audio.Speech.New(ctx, openai.AudioSpeechNewParams{
			Model: model,
			Input: prompt,
			Voice: openai.AudioSpeechNewParamsVoiceUnion{OfString: openai.String("alloy")},
		})
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		bytes, err := io.ReadAll(answer.Body)
		return object{
			"content_type": answer.Header.Get("content-type"),
			"bytes":        base64.StdEncoding.EncodeToString(bytes),
		}, err
	case "transcription":
		return dump(client.Audio.Transcriptions.New(ctx, openai.AudioTranscriptionNewParams{
			Model:  model,
			File:   openai.File(bytes.NewReader(silence()), "silence.wav", "audio/wav"),
			Prompt: openai.String(prompt),
		}))
	case "moderations":
		return dump(client.Moderations.New(ctx, openai.ModerationNewParams{
			Model: model,
			Input: openai.ModerationNewParamsInputUnion{OfString: openai.String(prompt)},
		}))
	case "completions":
		return dump(client.Completions.New(ctx, openai.CompletionNewParams{
			Model:  openai.CompletionNewParamsModel(model),
			Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String(prompt)},
		}))
	}
	return nil, fmt.Errorf("no such call: %s", call)
}

// A wave file of a tenth of a second: 16 bits, one channel, 8 kHz.
func silence() []byte {
	header := "RIFF\x64\x06\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00" +
		"\x40\x1f\x00\x00\x80\x3e\x00\x00\x02\x00\x10\x00data\x40\x06\x00\x00"
	return append([]byte(header), bytes.Repeat([]byte{0}, 1600)...)
}

func describe(err error) object {
	var failure *openai.Error
	if !errors.As(err, &failure) {
		return object{"class": fmt.Sprintf("%T", err), "message": err.Error()}
	}
	return object{
		"class":   fmt.Sprintf("%T", failure),
		"status":  failure.StatusCode,
		"code":    failure.Code,
		"message": failure.Message,
		"param":   failure.Param,
		"type":    failure.Type,
	}
}

func main() {
	lines := json.NewEncoder(os.Stdout)
	lines.SetEscapeHTML(false)
	for call := range strings.SplitSeq(os.Getenv("CALLS"), ",") {
		result, err := run(call)
		line := object{"call": call, "result": result}
		if err != nil {
			line["error"] = describe(err)
		}
		if err := lines.Encode(line); err != nil {
			panic(err)
		}
	}
}
