// A program on the client that oapi-codegen makes: appends by compare-and-set, whole batches, reads.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func records(values ...string) []RecordIn {
	made := []RecordIn{}
	for at := range values {
		made = append(made, RecordIn{Value: &values[at]})
	}
	return made
}

func main() {
	ctx := context.Background()
	client, err := NewClientWithResponses(os.Args[1])
	must(err)
	for _, name := range []string{"orders", "copy"} {
		_, err := client.CreateTopicWithResponse(ctx, NewTopic{Name: name})
		must(err)
	}

	zero := int64(0)
	first, err := client.AppendRecordsWithResponse(ctx, "orders", 0, Produce{Records: records("a"), ExpectedOffset: &zero})
	must(err)
	fmt.Println("appended", first.JSON200.BaseOffset, first.JSON200.NextOffset)
	late, err := client.AppendRecordsWithResponse(ctx, "orders", 0, Produce{Records: records("late"), ExpectedOffset: &zero})
	must(err)
	refused := late.ApplicationproblemJSON412
	fmt.Println("refused", refused.Code, refused.NextOffset)
	each := []int64{refused.NextOffset, refused.NextOffset + 1}
	next, err := client.AppendRecordsWithResponse(ctx, "orders", 0, Produce{Records: records("b", "c"), ExpectedOffsets: &each})
	must(err)
	fmt.Println("appended", next.JSON200.BaseOffset, next.JSON200.NextOffset)

	one := 1
	whole, err := client.ReadBatchesWithResponse(ctx, "orders", 0, &ReadBatchesParams{Offset: &zero, MaxRecords: &one})
	must(err)
	position := whole.HTTPResponse.Header.Get("fenceline-position")
	sent, err := client.AppendBatchWithBodyWithResponse(
		ctx, "copy", 0, &AppendBatchParams{ExpectedOffset: &zero}, "application/octet-stream", bytes.NewReader(whole.Body))
	must(err)
	fmt.Println("batch", position, sent.JSON200.NextOffset)

	many, err := client.AppendBatchesWithResponse(ctx, ProduceMany{Partitions: []ProduceEntry{
		{Topic: "copy", Partition: 0, Records: records("d")},
		{Topic: "nowhere", Partition: 0, Records: records("e")},
	}})
	must(err)
	results := many.JSON200.Results
	why, err := results[1].Error.Discriminator()
	must(err)
	fmt.Println("several", *results[0].BaseOffset, why)

	for _, topic := range []string{"orders", "copy"} {
		page, err := client.ReadRecordsWithResponse(ctx, topic, 0, &ReadRecordsParams{Offset: &zero})
		must(err)
		for _, record := range page.JSON200.Records {
			fmt.Println(topic, record.Offset, *record.Value, record.Timestamp > 1<<32)
		}
	}
	at, err := client.GetOffsetForTimeWithResponse(ctx, "orders", 0, &GetOffsetForTimeParams{Timestamp: 1})
	must(err)
	fmt.Println("first at a time", *at.JSON200.Offset)
}
