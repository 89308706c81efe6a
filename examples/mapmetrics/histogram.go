// SPDX-License-Identifier: Apache-2.0
// Copyright The bpfman-operator authors

package mapmetrics

import (
	"errors"
	"fmt"
	"math"
)

// Buckets describe a histogram that a program keeps: a count for each bucket. Buckets are numbered. The number is in
// the key, in a label that is named bucket and is the last one, or it is the position in an array of the value.
type Buckets struct {
	// BucketType says what the number of a bucket means: one of the constants.
	BucketType string `json:"bucket_type,omitempty"`
	// BucketMultiplier converts the limits of buckets to the metric's unit. It is 1 by default.
	BucketMultiplier float64 `json:"bucket_multiplier,omitempty"`
	// BucketMin and BucketMax are the first and the last bucket. If the buckets are in an array, BucketMax is by default
	// its last position.
	BucketMin int `json:"bucket_min,omitempty"`
	BucketMax int `json:"bucket_max,omitempty"`
	// BucketKeys are the buckets of a histogram of type fixed.
	BucketKeys []float64 `json:"bucket_keys,omitempty"`
}

// Values of Buckets.BucketType: the largest value in bucket n. The first four are those of ebpf_exporter, and the last
// one is that of bcc's tools, whose buckets are rounded down.
const (
	bucketExp2     = "exp2"     // 2^n
	bucketExp2Zero = "exp2zero" // 0, then 2^(n-1)
	bucketLinear   = "linear"   // n
	bucketFixed    = "fixed"    // n, for each of BucketKeys
	bucketLog2     = "log2"     // 2^(n+1)-1
)

// maxBuckets is the maximum number of buckets of a histogram. Each is a series.
const maxBuckets = 256

func (b *Buckets) complete(limited bool) error {
	var wrong []error
	if b.BucketMultiplier == 0 {
		b.BucketMultiplier = 1
	}
	if b.BucketMultiplier < 0 {
		wrong = append(wrong, errors.New("bucket_multiplier must be greater than 0"))
	}
	switch b.BucketType {
	case bucketExp2, bucketExp2Zero, bucketLinear, bucketLog2:
		if b.BucketMin < 0 || b.BucketMax < b.BucketMin || b.BucketMax == 0 && limited || b.BucketMax-b.BucketMin >= maxBuckets {
			wrong = append(wrong, fmt.Errorf("bucket_max must be greater than bucket_min, with at most %d buckets", maxBuckets))
		}
		if b.BucketType != bucketLinear && b.BucketMax > 64 {
			wrong = append(wrong, errors.New("bucket_max must be at most 64"))
		}
	case bucketFixed:
		if len(b.BucketKeys) == 0 || len(b.BucketKeys) > maxBuckets {
			wrong = append(wrong, fmt.Errorf("bucket_keys: from 1 to %d are required", maxBuckets))
		}
		for i, key := range b.BucketKeys {
			if i > 0 && key <= b.BucketKeys[i-1] {
				wrong = append(wrong, errors.New("bucket_keys must increase"))
				break
			}
		}
	default:
		wrong = append(wrong, fmt.Errorf("bucket_type: %q is neither %s, %s, %s, %s, nor %s", b.BucketType, bucketExp2, bucketExp2Zero, bucketLinear, bucketFixed, bucketLog2))
	}
	return errors.Join(wrong...)
}

// limit returns the largest value in a bucket.
func (b *Buckets) limit(bucket float64) float64 {
	switch b.BucketType {
	case bucketExp2:
		bucket = math.Exp2(bucket)
	case bucketExp2Zero:
		if bucket > 0 {
			bucket = math.Exp2(bucket - 1)
		}
	case bucketLog2:
		bucket = math.Exp2(bucket+1) - 1
	}
	return bucket * b.BucketMultiplier
}

// numbers returns the numbers of the buckets, in ascending order. last is the last bucket of an array.
func (b *Buckets) numbers(last int) []float64 {
	if b.BucketType == bucketFixed {
		return b.BucketKeys
	}
	if b.BucketMax > 0 {
		last = b.BucketMax
	}
	var all []float64
	for n := b.BucketMin; n <= last && len(all) < maxBuckets; n++ {
		all = append(all, float64(n))
	}
	return all
}

// histogram is what Prometheus needs of a histogram: cumulative counts.
type histogram struct {
	count   uint64
	sum     float64
	buckets map[float64]uint64
}

// histogram converts the counts of buckets, by number. Programs for ebpf_exporter can add up all values in the bucket
// after the last one. If they don't, the sum is 0.
func (b *Buckets) histogram(counts map[float64]float64) histogram {
	last := 0
	for n := range counts {
		last = max(last, int(n))
	}
	numbers := b.numbers(last)
	h := histogram{buckets: make(map[float64]uint64, len(numbers))}
	for _, n := range numbers {
		h.count += uint64(counts[n])
		h.buckets[b.limit(n)] = h.count
	}
	if len(numbers) > 0 && b.BucketType != bucketLog2 {
		h.sum = counts[numbers[len(numbers)-1]+1] * b.BucketMultiplier
	}
	return h
}
