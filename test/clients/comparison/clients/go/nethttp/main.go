// Sends the requests of the file REQUESTS with net/http and prints one JSON line for the answer to each.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

type object = map[string]any

func send(fields []string) (object, error) {
	method, path, contentType := fields[1], fields[2], fields[3]
	body, err := base64.StdEncoding.DecodeString(fields[4])
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(method, os.Getenv("BASE_URL")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("API_KEY"))
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	// Read to the end, so that the connection is used again.
	bytes, err := io.ReadAll(answer.Body)
	headers := object{}
	for name, values := range answer.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	return object{
		"status":  answer.StatusCode,
		"headers": headers,
		"body":    base64.StdEncoding.EncodeToString(bytes),
	}, err
}

func main() {
	requests, err := os.ReadFile(os.Getenv("REQUESTS"))
	if err != nil {
		panic(err)
	}
	lines := json.NewEncoder(os.Stdout)
	for request := range strings.SplitSeq(string(requests), "\n") {
		fields := strings.Split(request, "\t")
		result, err := send(fields)
		line := object{"call": fields[0], "result": result}
		if err != nil {
			line["error"] = object{"class": fmt.Sprintf("%T", err), "message": err.Error()}
		}
		if err := lines.Encode(line); err != nil {
			panic(err)
		}
	}
}
